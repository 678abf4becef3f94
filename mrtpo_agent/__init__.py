"""LoRA training of language models against several verifiable rewards: GRPO, GDPO and MRTPO."""

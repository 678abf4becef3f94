"""Words that tasks are made of. What the test split uses, the training split never does."""

from __future__ import annotations

_TOPICS = {
    "train": """
cats|trains|bread|the sea|winter mornings|a library|chess|gardens|mountains|old books|coffee|bicycles|the moon|rain|cooking
music lessons|a small town|whales|bees|painting|running|school lunches|clouds|a family picnic|robots|maps|the night sky
photography|fishing boats|a busy market|snow|dancing|a long journey|birthday parties|spiders|sailing|the first day of school
tea|volcanoes|a rainy afternoon|puppies|kites|the desert|castles|football|a good friend|airports|wooden toys|honey|owls
a quiet street|swimming|lanterns|soup|a lost key|elephants|the autumn|board games|a train station|farms|windmills|letters
a new neighbour|clocks|camping|rivers|ice cream|a day at the zoo|shoes|museums|planets|a school play|horses|recycling|bridges
sleep|a surprise visit|chocolate|hiking|the city at night|penguins|umbrellas|a broken window|stamps|butterflies
""",
    "test": """
dogs|lighthouses|cheese|the forest|summer evenings|a bakery|puzzles|islands|tigers|newspapers|lemonade|skateboards|the sun
thunder|baking|a piano|fireflies|a village fair|turtles|knitting|cycling|breakfast|fog|a wedding|satellites|treasure
waterfalls|street art|ferries|a flower shop|hail|the theatre|a short holiday|pirates|foxes|rowing|homework|pancakes|caves
""",
}
TOPICS = {
    split: [t.strip() for t in text.replace("\n", "|").split("|") if t.strip()] for split, text in _TOPICS.items()
}

REQUESTS = (
    "Write a short note about {topic}.",
    "Write a few words about {topic}.",
    "Tell me something about {topic}.",
    "Describe {topic} briefly.",
    "Write a short message to a friend about {topic}.",
    "Write a tiny story about {topic}.",
    "Explain in a few words why people like {topic}.",
    "Write a short advertisement for something to do with {topic}.",
    "Say what you think of {topic}.",
    "Write a short diary entry about {topic}.",
)

KEYWORDS = {
    "train": [
        "banana",
        "river",
        "golden",
        "window",
        "silent",
        "copper",
        "forest",
        "bright",
        "pocket",
        "morning",
        "silver",
        "garden",
        "harbor",
        "velvet",
        "candle",
        "mirror",
        "orange",
        "winter",
        "basket",
        "thunder",
        "yellow",
        "marble",
        "planet",
        "ribbon",
        "cotton",
        "meadow",
        "anchor",
        "button",
        "lemon",
        "tunnel",
        "pepper",
        "feather",
        "island",
        "hammer",
        "bottle",
        "dragon",
        "circle",
        "ladder",
        "blanket",
        "village",
        "pencil",
        "rocket",
        "saddle",
        "tulip",
        "wagon",
        "zebra",
        "autumn",
        "barrel",
        "cactus",
        "engine",
    ],
    "test": [
        "purple",
        "castle",
        "magnet",
        "walnut",
        "breeze",
        "jacket",
        "lantern",
        "cherry",
        "wooden",
        "stream",
        "turtle",
        "violet",
        "mountain",
        "needle",
        "parrot",
        "shadow",
        "tomato",
        "valley",
        "whistle",
        "crystal",
        "donkey",
        "ginger",
        "helmet",
        "jungle",
        "kettle",
        "market",
        "napkin",
        "oyster",
        "pillow",
        "quartz",
    ],
}

# None holds a word that a task may forbid.
END_PHRASES = {
    "train": [
        "See you soon.",
        "Nothing more for today.",
        "Thank you for reading.",
        "What do you think?",
        "Have a nice day!",
        "Let me know.",
        "I hope this helps.",
        "Stay curious.",
        "Enjoy every moment.",
        "Shall we go?",
    ],
    "test": [
        "Speak with you later.",
        "Here ends my note.",
        "Take good care.",
        "Any questions?",
        "Keep smiling!",
        "Until next time.",
    ],
}

LETTERS = {"train": list("bcfgkmpvw"), "test": list("dhlyu")}

SECTION_WORDS = {"train": ["Section", "PART"], "test": ["Chapter", "SECTION"]}

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can import toy

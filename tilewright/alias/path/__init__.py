"""No part of Tilewright's own names: the directory that the alias puts on the path."""

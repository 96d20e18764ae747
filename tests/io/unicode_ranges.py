# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# unicode_ranges.py: prints the ranges in io/text/character_classes.cpp: the letters (general category L) and numbers (N)
# of Unicode 16.0, which is the version of Hugging Face's tokenizers 0.23. Needs the wheel unicodedata2 16.0.0.

import textwrap

import unicodedata2


def gaps_and_lengths(category):
    """Characters outside the category, characters inside it, and so on from U+0000."""
    counts, inside = [0], False
    for code in range(0x110000):
        if (unicodedata2.category(chr(code))[0] == category) != inside:
            counts.append(0)
            inside = not inside
        counts[-1] += 1
    return counts if inside else counts[:-1]


assert unicodedata2.unidata_version == "16.0.0"
for name, category in (("kLetters", "L"), ("kNumbers", "N")):
    counts = gaps_and_lengths(category)
    print(f"constexpr std::array<std::uint32_t, {len(counts)}> {name} = {{")
    print(textwrap.fill(", ".join(map(str, counts)), 115, initial_indent="    ", subsequent_indent="    ") + "};")

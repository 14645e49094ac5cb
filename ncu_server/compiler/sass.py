"""Disassembly read as data: one kernel's lines, and the kinds of its instructions, which stand here alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ncu_server.wire.compilation import Mix

SECTION = re.compile(r"^\.text\.(\S+):$")
PLACE = re.compile(r'^//## File "([^"]*)", line (\d+)(.*)')
SASS = re.compile(r"^/\*[0-9a-f]+\*/\s+(.*?)\s*;?$")
OPCODE = re.compile(r"(?:@!?U?P[T\d]+ )?([A-Z][A-Z0-9_]*)((?:\.[A-Z0-9_]+)*)")
PTX_ENTRY = re.compile(r"^(?:\.visible |\.weak )*\.entry ([\w$.]+)")
PTX_OPCODE = re.compile(r"^(?:@!?%\w+ )?([a-z][a-z0-9_]*)((?:[.:]+[\w:]+)*)")
MOST_OPCODES = 16

CLASSES = {
    "global load": r"LDG|LD|LDGDEPBAR",
    "global store": r"STG|ST",
    "shared load": r"LDS|LDSM|LDSM_T",
    "shared store": r"STS|STSM",
    "local load": r"LDL",
    "local store": r"STL",
    "async copy": r"LDGSTS|UBLKCP|UBLKPF|UTMA\w+|LDTM|STTM|UTCCP|UBLKRED",
    "atomic": r"ATOM\w*|RED|REDG|CCTL\w*",
    "constant load": r"LDC|LDCU|ULDC",
    "texture": r"TEX|TLD|TLD4|TXQ|SULD|SUST|TXD",
    "tensor": r"HMMA|IMMA|DMMA|BMMA|QMMA|OMMA|HGMMA|IGMMA|QGMMA|BGMMA|UTC\w*MMA",
    "fp32": r"FFMA\d?|FADD\d?|FMUL\d?|FMNMX\d?|FSETP?|FSEL|FCHK|FSWZADD|FFMA32I|FADD32I|FMUL32I",
    "fp16": r"H(FMA2|ADD2|MUL2|MNMX2|SETP?2)\w*",
    "fp64": r"D(FMA|ADD|MUL|SETP|MNMX)",
    "special function": r"MUFU",
    "conversion": r"I2F\w*|F2I\w*|F2F\w*|I2I\w*|FRND\w*|F2FP\w*|I2FP\w*|F2IP\w*",
    "barrier": r"BAR|B2R|DEPBAR|WARPSYNC|SYNCS|MEMBAR|ERRBAR|FENCE|UCGABAR\w*|NANOSLEEP|ARRIVES|WARPGROUP\w*",
    "warp exchange": r"SHFL|VOTE\w*|MATCH|REDUX|CREDUX|ELECT",
    "branch": r"BRA|BRX|JMP|JMX|CALL|RET|EXIT|BSSY|BSYNC|BREAK|YIELD|KILL|RPCMOV|BMOV|LEPC|BPT",
    "integer": r"U?I(ADD3?|MAD|MUL|SETP|MNMX|ABS|ADD64|DP4A|SCADD)\w*|V?IADD\w*|U?LOP3?|U?SHF|U?SHL|U?SHR|U?LEA|"
    r"U?BREV|U?FLO|U?POPC|U?SGXT|U?BMSK|PLOP3|UPLOP3|VABSDIFF\w*|VIMNMX\w*|VHMNMX\w*|U?LEPC|XMAD",
    "move": r"U?MOV\w*|U?SEL|U?PRMT|S2R|S2UR|CS2R|R2P|P2R|R2UR|UR2UP|UP2UR|R2B|B2R|CS2UR|USETMAXREG|UMOV",
    "nothing": r"NOP",
}
MATCHERS = {name: re.compile(pattern) for name, pattern in CLASSES.items()}
PTX_CLASSES = {
    "ld.global": "global load",
    "st.global": "global store",
    "ld.shared": "shared load",
    "st.shared": "shared store",
    "ld.local": "local load",
    "st.local": "local store",
    "cp.async": "async copy",
    "ldmatrix": "shared load",
    "mma": "tensor",
    "wmma": "tensor",
    "wgmma": "tensor",
    "bar": "barrier",
    "barrier": "barrier",
    "mbarrier": "barrier",
    "bra": "branch",
    "ret": "branch",
    "shfl": "warp exchange",
    "atom": "atomic",
    "red": "atomic",
    "cvt": "conversion",
    "ld.param": "constant load",
    "ld.const": "constant load",
}
SPECIAL = ("ex2", "lg2", "sin", "cos", "rcp", "rsqrt", "sqrt", "tanh")


def kernels_in_sass(text: str) -> dict[str, list[str]]:
    """By mangled name, the lines of each kernel in what `nvdisasm -g` prints, without addresses."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for row in map(str.strip, text.splitlines()):
        if name := SECTION.match(row):
            lines = found.setdefault(name[1], [])
        elif row.startswith((".section", "//---")):
            lines = None
        elif lines is not None and row:
            lines.extend(_sass_line(row))
    return found


def _sass_line(row: str) -> Iterator[str]:
    if place := PLACE.match(row):
        inlined = " (inlined)" if "inlined" in place[3] else ""
        yield f"// {place[1].rpartition('/')[2]}:{place[2]}{inlined}"
    elif code := SASS.match(row):
        yield re.sub(r'\s*\(\*"SpillRefill"\*\)', " // spill", code[1]).replace(";", "").rstrip()
    elif row.endswith(":"):
        yield row


def kernels_in_ptx(text: str) -> dict[str, list[str]]:
    """By mangled name, the lines of each entry of a PTX module."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for row in text.splitlines():
        if entry := PTX_ENTRY.match(row):
            lines = found.setdefault(entry[1], [])
        if lines is not None and row.strip():
            lines.append(row.strip())
        if row.startswith("}"):
            lines = None
    return found


def mix_of_sass(lines: list[str]) -> Mix:
    """The instructions by class, by opcode, and global loads by width."""
    codes = [code for line in lines if not line.startswith(("//", ".")) and (code := OPCODE.match(line))]
    opcodes = Counter(code[1] for code in codes)
    widths = Counter(_bits(code[2]) for code in codes if code[1] in ("LDG", "LD"))
    classes: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        classes[class_of(opcode)] += count
    return Mix(
        total=len(codes),
        classes=dict(classes.most_common()),
        opcodes=dict(opcodes.most_common(MOST_OPCODES)),
        global_load_bits=dict(widths.most_common()),
        spill_instructions=sum(line.endswith("// spill") for line in lines),
    )


def opcode_of(instruction: str) -> str | None:
    """The opcode of an instruction of SASS, without its predicate and its suffixes; None for what is none."""
    code = OPCODE.match(instruction)
    return code[1] if code else None


def mnemonic_of(instruction: str) -> str | None:
    """The opcode of an instruction of SASS with its suffixes; None for what is none."""
    code = OPCODE.match(instruction)
    return code[0].rpartition(" ")[2] if code else None


def class_of(opcode: str) -> str:
    """What an opcode of SASS does, a key of CLASSES or `other`."""
    return next((name for name, pattern in MATCHERS.items() if pattern.fullmatch(opcode)), "other")


def _bits(suffixes: str) -> str:
    """A load's width in bits, which SASS leaves out where it is 32."""
    for suffix in suffixes.split("."):
        if digits := re.fullmatch(r"[US]?(8|16|64|128|256)", suffix):
            return digits[1]
    return "32"


def mix_of_ptx(lines: list[str]) -> Mix:
    """The same of PTX, whose instructions are the virtual machine's and not the card's."""
    codes = [line for line in lines if line.endswith(";") and not line.startswith((".", "//"))]
    parsed = [code for line in codes if (code := PTX_OPCODE.match(line))]
    opcodes = Counter(".".join([code[1], *[p for p in code[2].split(".") if p][:1]]) for code in parsed)
    classes: Counter[str] = Counter()
    for code in parsed:
        classes[_ptx_class(code[1], code[2])] += 1
    return Mix(total=len(parsed), classes=dict(classes.most_common()), opcodes=dict(opcodes.most_common(MOST_OPCODES)))


def _ptx_class(opcode: str, rest: str) -> str:
    parts = [part for part in re.split(r"[.:]+", rest) if part]
    for start in (".".join([opcode, *parts[:1]]), opcode):
        if start in PTX_CLASSES:
            return PTX_CLASSES[start]
    if opcode in SPECIAL:
        return "special function"
    kind = parts[-1] if parts else ""
    families = {"f32": "fp32", "f16": "fp16", "bf16": "fp16", "f16x2": "fp16", "bf16x2": "fp16", "f64": "fp64"}
    if opcode in ("mov", "selp", "cvta", "prmt"):
        return "move"
    return families.get(kind) or ("integer" if re.fullmatch(r"[sub]\d+|pred", kind) else "other")

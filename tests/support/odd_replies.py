"""Replies in odd form, each with what is to be read out of it. `{K}` stands for KERNEL, `{OTHER}` for another one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.support.edits import edit

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
"""
KERNEL = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <vector>
void twice(const float* x, float* y, long n) {
  for (long i = 0; i < n && n > 0; ++i) y[i] = x[i] * 2.0f;
}
"""
BLOCK = 256  # tune: 128, 256, 512
kernel = load_inline("twice", SOURCE)


class ModelNew(Model):
    """Doubles what it is given."""

    def forward(self, x):
        y = torch.empty_like(x)
        kernel.twice(x, y, x.numel())
        return y
'''
OTHER = edit(KERNEL, "BLOCK = 256", "BLOCK = 64")
INDENTED = "".join(f"   {row}".rstrip() + "\n" for row in KERNEL.splitlines())
DEEP = "".join(f"    {row}".rstrip() + "\n" for row in KERNEL.splitlines())
QUOTED = "".join(f"> {row}".rstrip() + "\n" for row in KERNEL.splitlines())
ESCAPED = edit(KERNEL, "&", "&amp;", times=2).replace("<", "&lt;").replace(">", "&gt;")
CUDA = "#include <vector>\n__global__ void twice(float* y) { y[0] *= 2; }\n"
FENCED_DOC = edit(
    KERNEL,
    '"""Doubles what it is given."""',
    '"""Doubles. Usage:\n\n```python\nmodel = ModelNew()\nclass ModelNew(Model): ...\n```\n    """',
)
BARE_DOC = edit(KERNEL, '"""Doubles what it is given."""', '"""Doubles.\n```\ny = model(x)\n```\n    """')
WHOLE = PROBLEM + "\n\n" + KERNEL
CUT = KERNEL[: KERNEL.index(" = torch.empty_like")] + " = torch.empty_l"


@dataclass(frozen=True)
class Odd:
    """A reply; `takes` is the code that is read out of it, else `refuses` matches the reason."""

    name: str
    reply: str
    takes: str = ""
    refuses: str = ""


def same(name: str, reply: str) -> Odd:
    return Odd(name, reply.replace("{K}", KERNEL).replace("{OTHER}", OTHER), KERNEL)


def no(name: str, reply: str, why: str) -> Odd:
    return Odd(name, reply.replace("{K}", KERNEL).replace("{OTHER}", OTHER), refuses=why)


FENCES = [
    same("tagged cpp", "```cpp\n{K}```"),
    same("tagged c++", "Here:\n\n```c++\n{K}```\n"),
    same("tagged cuda", "```cuda\n{K}```"),
    same("tagged py3", "```py3\n{K}```"),
    same("tagged Python3", "```Python3\n{K}```"),
    same("tagged PYTHON", "```PYTHON\n{K}```"),
    same("tagged text", "```text\n{K}```"),
    same("a title behind the tag", '```python title="best.py" linenums="1"\n{K}```'),
    same("braces around the tag", "```{.python .numberLines}\n{K}```"),
    same("a file name as the tag", "```kernel.py\n{K}```"),
    same("a blank before the tag", "```   python   \n{K}```   \n"),
    same("no tag", "```\n{K}```"),
    same("tildes", "~~~python\n{K}~~~"),
    same("four backticks", "````python\n{K}````"),
    same("a longer fence closes", "```python\n{K}``````\n"),
    same("an indented fence", f"Here:\n\n   ```python\n{INDENTED}   ```\n"),
    same("a deeply indented fence", f"Here:\n\n    ```python\n{DEEP}    ```\n"),
    same("in a numbered list", f"1. The code:\n\n   ```python\n{INDENTED}   ```\n\n2. Build it.\n"),
    same("as a list item", f"-  ```python\n{INDENTED}   ```\n"),
    same("in a quote", f"> ```python\n{QUOTED}> ```\n"),
    same("in a quote with prose before", f"He says:\n> Sure.\n>\n> ~~~py\n{QUOTED}> ~~~\nGood luck.\n"),
    same("words behind the closing fence", "```python\n{K}``` That's it, it doubles.\n"),
    same("words behind it and a block after", "```python\n{K}``` Build with:\n\n```bash\nninja\n```\n"),
    same("words behind the closing fence of C++ before it", f"```cpp\n{CUDA}``` becomes\n```python\n{{K}}```\n"),
    same("a comment after the closing fence", "```python\n{K}```<!-- end -->\n"),
    Odd("a fence behind its last row", "```python\n" + KERNEL.rstrip("\n") + "```", KERNEL),
    Odd("a fence in its docstring", f"```python\n{FENCED_DOC}```\n", FENCED_DOC),
    Odd("a bare fence in its docstring", f"Sure.\n```\n{BARE_DOC}```\nBye.\n", BARE_DOC),
    Odd("a fence in a string of C++", "```py\n" + (c := edit(KERNEL, "#include", "/*\n```\n*/\n#include")) + "```", c),
    Odd("longer fences around fences", f"`````python\n{FENCED_DOC}`````\n", FENCED_DOC),
    same("not closed, but whole", "```python\n{K}"),
    same("not closed, with prose behind", "```python\n{K}\nThis kernel reads each byte once.\nIt's fast.\n"),
    same("a details tag just before", "<details>\n<summary>Code</summary>\n```python\n{K}```\n</details>\n"),
]
OPEN = [
    same("nothing but code", "{K}"),
    same("code between prose", "Here is the module:\n\n{K}\nIt doesn't retreat to PyTorch.\n- It is short.\n"),
    same("what a page's button leaves", "python\nCopy code\n{K}"),
    same("between tags", "<answer>\n<code>\n{K}</code>\n</answer>\n"),
    same("indented as code", f"Here:\n\n{DEEP}\nDone.\n"),
    same("prose that begins like code", "import note: build it once\nfrom here on it is code\n\n{K}"),
    same("quoted without a fence", f"{QUOTED}"),
]
THOUGHTS = [
    same("after thoughts", "<think>\nPerhaps a loop.\n</think>\n\n```python\n{K}```"),
    same("after thoughts with a draft", "<think>\n```python\n{OTHER}```\nNo.\n</think>\n```python\n{K}```"),
    same("a draft in thoughts that nothing fences", "<thinking>\n{OTHER}\n</thinking>\n{K}"),
    same("thoughts that only end", "First I\n```\nclass ModelNew(\n</think>\n```python\n{K}```"),
    same("thoughts that do not end", "<think>\nSo I write\n```python\n{K}```"),
    same("a tag just before the fence", "<think>x</think>\n<answer>\n```python\n{K}```\n</answer>"),
    same("thoughts aloud without tags", "Thought: a loop.\n\nAction: write\n\n```python\n{K}```\n\nThought: done."),
    same("only a draft, in the thoughts", "<think>\n```python\n{K}```\n</think>\nThat is what I would build."),
]
SEVERAL = [
    same("a draft and the final", "Draft:\n```python\n{OTHER}```\nBetter:\n```python\n{K}```\n"),
    same("a usage example after it", "```python\n{K}```\nUse it:\n```python\nmodel = ModelNew()\nprint(model)\n```\n"),
    same("an excerpt in prose after it", "```python\n{K}```\nclass ModelNew(Model) is the entry point.\n"),
    same("a last block that is cut off", f"```python\n{{K}}```\nEven better:\n```python\n{CUT}"),
    same(
        "a diff that explains it", "```python\n{K}```\nAgainst the parent:\n```diff\n-a\n+class ModelNew(Model):\n```\n"
    ),
    Odd(
        "CUDA in a block of its own",
        f"```cuda\n{CUDA}```\n```python\nclass ModelNew(Model):\n    source = CUDA_SOURCE\n```\n",
        f'CUDA_SOURCE = r"""\n{CUDA}"""\n\nclass ModelNew(Model):\n    source = CUDA_SOURCE\n',
    ),
    Odd(
        "the source as Python in a block before",
        f"```python\nSOURCE = '''{CUDA}'''\n```\nThen:\n```python\nclass ModelNew(Model):\n    source = SOURCE\n```\n",
        f"SOURCE = '''{CUDA}'''\n\n\nclass ModelNew(Model):\n    source = SOURCE\n",
    ),
    no(
        "two blocks of C++ that nothing names",
        f"```cuda\n{CUDA}```\n```cpp\n{CUDA}```\n```python\nk = print(A, B)\nclass ModelNew(Model):\n    pass\n```\n",
        r"uses A, B, which nothing in it defines.*line 2, 6, stands outside",
    ),
]
PATCHES = [
    Odd(
        "a unified diff",
        '```diff\n--- a/parent.py\n+++ b/parent.py\n@@ -10,3 +10,3 @@\n """\n-BLOCK = 64  # tune: 128, 256, 512\n'
        '+BLOCK = 256  # tune: 128, 256, 512\n kernel = load_inline("twice", SOURCE)\n```\n',
        KERNEL,
    ),
    Odd(
        "search and replace",
        "<<<<<<< SEARCH\nBLOCK = 64  # tune\n=======\nBLOCK = 256  # tune\n>>>>>>> REPLACE\n".replace(
            "# tune", "# tune: 128, 256, 512"
        ),
        KERNEL,
    ),
    Odd(
        "an apply_patch call",
        "*** Begin Patch\n*** Update File: kernel.py\n@@\n-BLOCK = 64  # tune: 128, 256, 512\n"
        "+BLOCK = 256  # tune: 128, 256, 512\n*** End Patch\n",
        KERNEL,
    ),
    no(
        "a diff of something else",
        "```diff\n@@ -1 +1 @@\n-x = 1\n+x = 2\n```\n",
        "a diff against the parent.*line 3 fits no",
    ),
    no("a diff that fits twice", "```diff\n@@ @@\n-\n+# here\n```\n", r"a diff against the parent.*fits \d+ places"),
    no("a diff of nothing but additions", "```diff\n@@ @@\n+BLOCK = 1\n```\n", "a diff .* adds lines without one"),
    no("a diff of nothing", "<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n", "a diff against the parent.*changes nothing"),
    no(
        "a diff that breaks it",
        "```diff\n@@ @@\n-BLOCK = 64  # tune: 128, 256, 512\n+BLOCK = = 64\n```\n",
        "a diff against the parent.* does not parse",
    ),
]
CHARACTERS = [
    same("Windows line ends", "```python\n{K}```\n".replace("{K}", KERNEL).replace("\n", "\r\n")),
    same("a mark first", "\ufeff```python\n{K}```"),
    same("a mark in the code", "```python\n\ufeff{K}```"),
    same(
        "blanks that do not break",
        "```python\n{K}```".replace("{K}", edit(KERNEL, "    ", "\u00a0\u00a0\u00a0\u00a0", times=8)),
    ),
    same(
        "characters of no width", "```python\n{K}```".replace("{K}", edit(KERNEL, "ModelNew", "Model\u200bNew\u2060"))
    ),
    same("curly quotes", "```python\n{K}```".replace("{K}", edit(KERNEL, '("twice"', "(\u201ctwice\u201d"))),
    same(
        "curly quotes around the docstring",
        "```python\n" + edit(KERNEL, '"""Doubles', "\u201c\u201d\u201dDoubles") + "```",
    ),
    same("written for a page", f"```python\n{ESCAPED}```"),
    same("tags and entities of a page", f'<pre><code class="python">\n{ESCAPED}</code></pre>'),
    Odd("tabs", "```python\n" + (c := edit(KERNEL, "    ", "\t", times=8)) + "```", c),
    same("tabs and blanks mixed", "```python\n" + edit(KERNEL, "        kernel.twice", "\tkernel.twice") + "```"),
]
WRAPPED = [
    same("in JSON", json.dumps({"thought": "a loop", "code": KERNEL})),
    same("in JSON in a fence", f"Here:\n```json\n{json.dumps({'code': KERNEL}, indent=2)}\n```\n"),
    same("as a list of files", json.dumps([{"path": "a.md", "content": "# a"}, {"path": "k.py", "content": KERNEL}])),
    same("as the arguments of a call", json.dumps({"name": "write", "arguments": json.dumps({"content": KERNEL})})),
    same("as a fenced block in JSON", json.dumps({"answer": f"Sure.\n```python\n{KERNEL}```\n"})),
    same("as a Python dictionary", repr({"code": KERNEL})),
    no("in JSON, and cut off", json.dumps({"code": CUT}), "cut off: it ends in line 18"),
]
NAMED = [
    Odd(
        "by another name for it",
        f"```python\n{(c := edit(KERNEL, 'ModelNew', 'Fast'))}ModelNew = Fast\n```",
        c + "ModelNew = Fast\n",
    ),
    Odd("with Model in it", f"```python\n{WHOLE}```", WHOLE),
]
MISSING = [
    no("empty", "  \n", "it is empty"),
    no("a refusal", "I cannot write CUDA.", "no ```python block .*no code at all"),
    no("prose about it", "class ModelNew is what I would write.", "no ```python block"),
    no(
        "the class under another name",
        "```python\nclass Fast(Model):\n    pass\n```",
        "line 2 of the reply defines Fast",
    ),
    no(
        "Model itself rewritten",
        "Yes:\n```python\nclass Model: ...\nclass B(Model): ...\n```",
        "line 3 .* defines Model, B",
    ),
    no(
        "within a function", "```python\ndef make():\n    class ModelNew: ...\n```", "line 3 of the reply stands within"
    ),
    no(
        "named in its docs alone",
        '```python\n"""\nclass ModelNew(Model): later.\n"""\nx = 1\n```',
        "no ```python block",
    ),
    no("cut off", f"Sure.\n\n```python\n{CUT}", "cut off: it ends in line 21"),
    no("cut off in the source of C++", "```python\n" + KERNEL[:160], "cut off: .* line 1 of the reply is not closed"),
    no("cut off without a fence", edit(CUT, "torch.empty_l", "torch.empty_like("), "cut off: it ends in line 18"),
    no("a mistake in a closed block", "Sure.\n\n```python\n{K}x = = 1\n```", "does not parse: line 24 of the reply"),
    no("a mistake in an open block", "```python\nx = = 1\n{K}", "does not parse: line 2 of the reply"),
    no(
        "a mistake in the final after a draft",
        "```python\n{OTHER}```\n```python\n{K}x = = 1\n```",
        "line 44 of the reply",
    ),
    no("a mistake in a list", f"1. So:\n\n   ```python\n{INDENTED}   x = = 1\n   ```\n", "line 24 of the reply"),
]
MODULES = [*FENCES, *OPEN, *THOUGHTS, *SEVERAL, *PATCHES, *CHARACTERS, *WRAPPED, *NAMED, *MISSING]

A = '{"title": "A", "transformation": "t"}'
B = '{"title": "B", "transformation": "u"}'


@dataclass(frozen=True)
class OddIdeas:
    """A reply; `titles` are those of its ideas, else `refuses` matches the reason."""

    name: str
    reply: str
    titles: tuple[str, ...] = ()
    refuses: str = ""


IDEAS = [
    OddIdeas("comments of C", f"[\n  // the first\n  {A}, /* and */\n  {B}\n]", ("A", "B")),
    OddIdeas("comments of Python", f"[\n  # the first\n  {A},  # and\n  {B}\n]", ("A", "B")),
    OddIdeas("trailing commas", '{"ideas": [{"title": "A", "transformation": "t",}, ' + B + ",],}", ("A", "B")),
    OddIdeas("single quotes", "[{'title': 'A', 'transformation': 'don\\'t say \"t\"'}]", ("A",)),
    OddIdeas("a Python list", "ideas = [{'title': 'A', 'transformation': 't', 'risk': None, 'x': True}]", ("A",)),
    OddIdeas("keys without quotes", "```json5\n{ideas: [{title: 'A', transformation: 't'}]}\n```", ("A",)),
    OddIdeas("curly quotes", "[{\u201ctitle\u201d: \u201cA\u201d, \u201ctransformation\u201d: \u201ct\u201d}]", ("A",)),
    OddIdeas("a string over two lines", '[{"title": "A", "transformation": "first\nthen"}]', ("A",)),
    OddIdeas("escapes that JSON has not", r'[{"title": "A", "transformation": "a \* b in \(x\)"}]', ("A",)),
    OddIdeas("no number", '[{"title": "A", "transformation": "t", "predicted_gain": NaN}]', ("A",)),
    OddIdeas("a gain with its unit", '[{"title": "A", "transformation": "t", "predicted_gain": 1.6x}]', ("A",)),
    OddIdeas("a gain with a plus", '[{"title": "A", "transformation": "t", "predicted_gain": +1.5}]', ("A",)),
    OddIdeas("thoughts before it", f'<think>[{B}] or {{"title": "C"}}?</think>\n[{A}]', ("A",)),
    OddIdeas("thoughts that do not end", f"<think> I say\n[{A}]", ("A",)),
    OddIdeas("footnotes before it", f"As [1] and [2, 3] say[^4].\n\n[^4]: {{see}} there.\n\n[{A}]", ("A",)),
    OddIdeas("a draft and the final", f"Draft:\n```json\n[{B}]\n```\nFinal:\n```json\n[{A}]\n```", ("A",)),
    OddIdeas("a draft, and a final that is cut off", f'Draft: [{A}, {B}]\nFinal: [{A}, {{"title": "C', ("A", "B")),
    OddIdeas("a final of which one is whole", f'[{A}, {{"title": "C", "transfor', ("A",)),
    OddIdeas("a line each", f"{A}\n{B}\n", ("A", "B")),
    OddIdeas("a block each", f"### 1\n```json\n{A}\n```\n### 2\n```json\n{B}\n```", ("A", "B")),
    OddIdeas("one object", A, ("A",)),
    OddIdeas("under two keys", f'{{"analysis": ["x"], "result": [{A}]}}', ("A",)),
    OddIdeas("as the arguments of a call", f'{{"name": "propose", "arguments": {{"ideas": [{A}, {B}]}}}}', ("A", "B")),
    OddIdeas("an object each", f'[{{"idea": {A}}}, {{"idea": {B}}}]', ("A", "B")),
    OddIdeas("under numbers", f'{{"1": {A}, "2": {B}}}', ("A", "B")),
    OddIdeas("a quote around it", f"> [{A},\n>  {B}]".replace(">  ", "   "), ("A", "B")),
    OddIdeas("Windows line ends and a mark", f"\ufeff[\r\n{A},\r\n{B}\r\n]", ("A", "B")),
    OddIdeas("blanks that do not break", f"[\u00a0{A},\u00a0{B}\u200b]", ("A", "B")),
    OddIdeas("entities of a page", f"[{A}]".replace('"', "&quot;"), ("A",)),
    OddIdeas("a slash within", '[{"title": "A // B", "transformation": "see http://x#y",}]', ("A // B",)),
    OddIdeas(
        "a numbered list in prose", "Ideas:\n\n1. **Wide loads**: use float4\n2. Tiles", refuses="in line 3 is prose"
    ),
    OddIdeas("a comma is missing", '[\n{"title" "B"}]', refuses="line 2, column 10 of the reply: Expecting ':'"),
    OddIdeas(
        "cut off at once", 'So:\n[{"title": "A", "transfor', refuses="line 2, column 17 of the reply: Unterminated"
    ),
    OddIdeas("a list of words", '["wide loads", "tiles"]', refuses="its objects need a title"),
    OddIdeas("no transformation", '[{"title": "A"}]', refuses="an idea's transformation"),
    OddIdeas(
        "a quote that ends too early", '[\n{"title": "the "best" one"}]', refuses="line 2, column 17 of the reply"
    ),
]

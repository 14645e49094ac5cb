"""A session of the SDK's first generation (mcp<2), run by a Python of its own: argv is a command, or URL and token."""

import asyncio
import contextlib
import sys
from datetime import timedelta

from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

KERNEL = "__global__ void f(float* x) { x[0] = 1; }"
MANY = "\n".join(
    f"__global__ void k{i}(int* p) {{ float v[64]; for (int r = 0; r < 99; ++r)"
    f" for (int j = 0; j < 64; ++j) v[j] = p[j] * v[(j * {i} + r) & 63]; p[{i}] = v[{i % 64}]; }}"
    for i in range(2000)
)


async def session(read, write):
    async with ClientSession(read, write) as client:
        opened = await client.initialize()
        tools = (await client.list_tools()).tools
        said = []

        async def note(progress, total, message):
            said.append(message)

        good = await client.call_tool("compile_kernel", {"source": KERNEL + "// legacy"}, progress_callback=note)
        assert not good.isError and good.structuredContent["status"] in ("compiled", "build_error"), good
        bad = await client.call_tool("evaluate_kernel", {"candidate": 3})
        assert bad.isError and bad.content[0].text.startswith("BAD_ARGUMENT: "), bad
        with contextlib.suppress(McpError):  # it does not tell the server, which ends the compiler by its timeout_s
            await client.call_tool("compile_kernel", {"source": MANY, "timeout_s": 6}, timedelta(seconds=1))
        await asyncio.sleep(8)
        again = await client.call_tool("compile_kernel", {"source": KERNEL})
        assert not again.isError
        print(f"protocol {opened.protocolVersion}, {len(tools)} tools, progress {said}, served after a timeout")


async def main():
    if sys.argv[1].startswith("http"):
        headers = {"Authorization": f"Bearer {sys.argv[2]}"}
        async with streamablehttp_client(sys.argv[1], headers=headers) as (read, write, _):
            await session(read, write)
    else:
        async with stdio_client(StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])) as (read, write):
            await session(read, write)


asyncio.run(main())

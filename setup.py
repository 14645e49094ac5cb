"""The packages of a wheel; all else stands in pyproject.toml. The corpus lies inside the package `rag` there."""

from setuptools import find_namespace_packages, setup

ours = find_namespace_packages(include=["kernel_agent*", "mcp_shell*", "ncu_server*", "rag*"])
corpus = [f"rag.{name}" for name in find_namespace_packages(include=["corpus*"])]
setup(packages=[*ours, *corpus], package_dir={"rag.corpus": "corpus"})

"""What a model replies, in whatever form: the module of a kernel, or ideas."""

from kernel_agent.replies.ideas import SCHEMA as SCHEMA
from kernel_agent.replies.ideas import Proposed as Proposed
from kernel_agent.replies.ideas import read_ideas as read_ideas
from kernel_agent.replies.module import read_module as read_module

"""Tools of other programs, by the Model Context Protocol: connected at run time, called as if they were our own."""

from refold.tools.mcp.answers import McpFailed as McpFailed
from refold.tools.mcp.configuring import McpServer as McpServer
from refold.tools.mcp.configuring import servers_of as servers_of
from refold.tools.mcp.held import McpStatus as McpStatus
from refold.tools.mcp.schemas import plain_schema as plain_schema
from refold.tools.mcp.toolset import McpToolset as McpToolset

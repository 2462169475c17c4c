"""Names that nothing in the tree uses and that stay: vulture reads this file as their use.

Each stands here with its reason; a name whose reason is gone goes too.
"""

import sys
from types import FrameType

from tests.differential.machine import DifferentialMachine
from tests.engine.test_replay import append_until_killed, print_script
from tests.index.test_embedder_extras import Endpoint
from tests.mcp.fixtures import Kept
from tests.mcp.test_client_http import Handler
from tests.rigs.tamper import Erasing, Relinking

import refold
from refold import Receipt
from refold.agent.builtin import tools_of
from refold.agent.hooks import async_hooks_of
from refold.embedders import HashedEmbedder
from refold.event import FLAG_BODY_ELSEWHERE, FLAG_ENCRYPTED
from refold.memory.aio import AsyncMemory
from refold.results import SessionSummary, Stats
from refold.views import board

# Bits and fields of the format that are written as zero today, so that their first use changes no offset.
FLAG_ENCRYPTED  # noqa: B018
FLAG_BODY_ELSEWHERE  # noqa: B018

# An embedder's profile, read by name because an embedder need not have it.
HashedEmbedder.compact_threshold  # noqa: B018
HashedEmbedder.merge_threshold  # noqa: B018

# What a memory finds by name, in its own room or in the one above it.
AsyncMemory  # noqa: B018
async_hooks_of  # noqa: B018
tools_of  # noqa: B018

# Parts of public results.
SessionSummary.total_turns  # noqa: B018
Receipt.cached_rows  # noqa: B018
Receipt.markers_too_short  # noqa: B018
Stats.reserved_bytes  # noqa: B018
Stats.store_bytes  # noqa: B018

# Fields of the forms that a board's values are held against.
board._EdgeForm.source  # noqa: B018, SLF001
board._EdgeForm.target  # noqa: B018, SLF001
board._MessageForm.created_at  # noqa: B018, SLF001
board._MessageForm.message_type  # noqa: B018, SLF001
board._MessageForm.node_id  # noqa: B018, SLF001
board._MetaForm.filtered_count  # noqa: B018, SLF001
board._MetaForm.last_synced_at  # noqa: B018, SLF001
board._MetaForm.next_cursor  # noqa: B018, SLF001
board._MetaForm.total_count  # noqa: B018, SLF001
board._NodeForm.builder  # noqa: B018, SLF001

# Called by name in child processes.
append_until_killed  # noqa: B018
print_script  # noqa: B018

# What a server of the standard library calls.
Endpoint.do_POST  # noqa: B018
Handler.do_DELETE  # noqa: B018
Endpoint.log_message  # noqa: B018

# Python asks a module for it.
refold.__dir__  # noqa: B018

# What the tamper suite asks of an adapter, and takes by name.
for adapter in (Erasing, Relinking):
    adapter.append_genuine  # noqa: B018
    adapter.delete_raw  # noqa: B018
    adapter.detection_point  # noqa: B018
    adapter.forge_record  # noqa: B018
    adapter.identity_of  # noqa: B018
    adapter.owner_of  # noqa: B018
    adapter.read_all_raw  # noqa: B018
    adapter.read_meta  # noqa: B018
    adapter.read_other_raw  # noqa: B018
    adapter.replay_onto  # noqa: B018
    adapter.restore_store  # noqa: B018
    adapter.snapshot_store  # noqa: B018
    adapter.supports_metadata  # noqa: B018
    adapter.supports_replay  # noqa: B018
    adapter.supports_snapshot  # noqa: B018
    adapter.write_meta  # noqa: B018
    adapter.write_raw  # noqa: B018

# Rules that are there to be picked, not called.
DifferentialMachine.burst_again  # noqa: B018
DifferentialMachine.burst_later  # noqa: B018
DifferentialMachine.burst_more  # noqa: B018
DifferentialMachine.burst_others  # noqa: B018
DifferentialMachine.erase_more  # noqa: B018

# What the SDK of the Model Context Protocol calls, of streams that go on where they were cut off.
Kept.replay_events_after  # noqa: B018
Kept.store_event  # noqa: B018

# What the interpreter reads of a frame that is traced, and calls with what nobody can be told of.
FrameType.f_trace_lines  # noqa: B018
FrameType.f_trace_opcodes  # noqa: B018
sys.unraisablehook  # noqa: B018

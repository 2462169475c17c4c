"""The bounds of refold, with their units at the end of their names; relations between them are asserted nearby.

Each bound is defined only here, so that error messages, documents and tests can name it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# Bounds on the arguments of callers.

# A conversation id, project, profile or journal name, in UTF-8: it is part of an LMDB key, which holds 511 bytes.
NAME_BYTES_MAX: Final = 400
KEY_BYTES_MAX: Final = 4_096  # A key of the scratchpad, the state scopes or a profile, in UTF-8.
ACTOR_BYTES_MAX: Final = 200  # The name of an actor, in UTF-8.
# One value: a text, or a JSON value as msgpack. A larger one belongs in a file whose name is remembered.
VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
# One event with all its texts, lists and vectors. As JSON, in which a character can take six bytes, it fits in one line
# of an export.
EVENT_BYTES_MAX: Final = 80 * 1024 * 1024
JSON_DEPTH_MAX: Final = 64  # Nesting of lists and objects in metadata, message parts, tool calls and state values.
SOURCES_COUNT_MAX: Final = 4_096  # Number of sources that one event can name.
REQUEST_BYTES_MAX: Final = 1_024  # A request id, in UTF-8. Only its keyed hash is stored.
# A JSON document that an import reads: a conversation, or a file that is one document. All of it is in RAM at once.
DOCUMENT_BYTES_MAX: Final = 512 * 1024 * 1024
BATCH_EVENTS_MAX: Final = 1_000_000  # Events of one batch, which are in RAM until the block ends.
# Forks of forks of whole memories: how many can lie between one and its origin.
BASE_DEPTH_MAX: Final = 64
TIME_NS_MAX: Final = 2**63 - 1  # A time in nanoseconds since 1970, as a signed 64-bit integer.
# How far the newest event can be ahead of the clock before the clock decides what day it is: more than the clocks of
# machines that share a log differ.
CLOCK_BEHIND_NS: Final = 3_600 * 10**9

# Token budgets.
WINDOW_TOKENS_DEFAULT: Final = 128_000
WINDOW_TOKENS_MAX: Final = 2**40
MESSAGE_TOKENS_MAX: Final = 2**40

# What a block of a message that is no text counts, by its kind: an estimate of the right order, not measured. Providers
# differ, and the size of an image, the pages of a document and the length of a sound are not known without decoding
# them: these are for an image of middle size, two pages, and a minute. `tokens=` gives the exact number.
MEDIA_TOKENS: Final[Mapping[str, int]] = MappingProxyType(
    {"image": 1_000, "audio": 2_000, "document": 5_000, "video": 16_000}
)

# How the log is folded, checkpointed and read.

# A stream gets a checkpoint row after this many events, or after more if its last row was large: one for every two
# events that the row pointed at, or one for every ``CHECKPOINT_EVENT_BYTES`` bytes in it. So the rows of a stream that
# only grows take space in proportion to its events.
CHECKPOINT_EVENTS: Final = 256
CHECKPOINT_EVENT_BYTES: Final = 32
# Events after the oldest stream without a checkpoint, which opening a store has to scan.
TAIL_EVENTS_MAX: Final = 50_000
CHECKPOINT_ROWS_MAX: Final = 500  # Checkpoint rows that one transaction writes when a store is flushed or closed.
# Streams that one commit packs when the tail is too long, or twice as many as it has events, if that is more.
PACKED_COUNT_MIN: Final = 32
# A value up to this size is stored in its checkpoint row; for a larger one the row points at its event.
INLINE_BYTES_MAX: Final = 256
# Events read, decoded and folded at a time; no read transaction stays open longer than one page takes.
PAGE_EVENTS: Final = 256
# RAM that the loaded streams of one memory and the vectors that are searched can take together.
MEMORY_BYTES_DEFAULT: Final = 512 * 1024 * 1024
MEMORY_BYTES_MIN: Final = 1024 * 1024
# Verification: the states that it folds again, in addition to the loaded ones, take at most ``memory_bytes`` divided by
# ``VERIFY_PARTS_COUNT``. A repetition of an event is recognized among the next ``RECENT_EVENTS_COUNT`` events. Up to
# ``STALE_LINKS_COUNT`` earlier links are tried to find the one that a stale link continues from.
VERIFY_PARTS_COUNT: Final = 4
RECENT_EVENTS_COUNT: Final = 65_536
STALE_LINKS_COUNT: Final = 1_000_000
VERIFY_JOBS_COUNT_MAX: Final = 64
# RAM of a loaded stream besides its events, for its slot, names, states and their containers; and RAM of an event
# besides the bytes of its record, for the objects that it is decoded into.
STREAM_OVERHEAD_BYTES: Final = 3_000
EVENT_OVERHEAD_BYTES: Final = 500
# Memories of a project that one commit packs for a checkpoint row; a larger commit packs twice as many as it has
# events.
PACKED_SLICE_COUNT: Final = 512
# Streams that can leave RAM after a commit, or twice as many as it has events, if that is more.
EVICTED_COUNT_MIN: Final = 32
# Number of times that streams enter or leave RAM before the log releases the pages that it has read.
RELIEVED_COUNT: Final = 64
SEEDS_COUNT: Final = 64  # Seeds of salts that are drawn at once for future commits.
# How often a read yields to other threads until this process's own commit is folded, if another process committed after
# it.
SETTLE_COUNT_MAX: Final = 1_000
GROUP_COUNT_MAX: Final = 1_024  # Callers whose events one commit takes together; the rest wait for the next one.
# A commit of fewer callers does not wait for them to come back, because they may be the only ones.
LINGER_CALLERS_COUNT_MIN: Final = 4
# The longest time that a commit lingers for the callers of earlier commits; it lingers half as long as the last commit
# took, up to this.
LINGER_NS_MAX: Final = 10_000_000
LINGER_LOOKS_COUNT: Final = 16  # How often a lingering commit checks whether the callers are back.
# Maximum number of commits that do not linger because callers last came back too late.
LINGER_LATE_COUNT_MAX: Final = 256
AIO_QUEUE_COUNT_MAX: Final = 100_000  # Mutations of one event loop that can wait to be written.
TURN_SECONDS_MAX: Final = 20  # How long to retry for a turn at the log that other writers took first.
TURNS_COUNT_MIN: Final = 16  # Minimum number of attempts, because a stalled server can use up all the time in one.
# How long a caller waits for its mutation to be written before it is refused because the store is busy.
COMMIT_WAIT_SECONDS_MAX: Final = 30
BELL_SECONDS: Final = 0.05  # How long a caller sleeps at most before it checks whether its mutation was written.
# How long an event that another process wrote can wait for the subscribers of this process, if nothing wakes them.
POLL_MS: Final = 20
# How often a decision that involves a whole memory is retried because other writers changed the memory meanwhile.
REDO_COUNT_MAX: Final = 64
ATTEMPTS_COUNT_MAX: Final = 1_000_000  # The same bound, as the caller of a transaction can choose it.
# How often a witness receives the position of the log; including the time of a flush, it lags less than a second.
WITNESS_MS: Final = 500
# How long a process that writes a witness waits for another that does: a millisecond, unless that process is stopped.
WITNESS_WAIT_SECONDS_MAX: Final = 2
FROZEN_STATES_MAX: Final = 64  # States at earlier seqs that the engine keeps for repeated reads.
PLACES_COUNT_MAX: Final = 1_024  # Places of streams at earlier seqs that are cached for repeated reads.
CUT_ROWS: Final = 10_000  # Rows that one transaction takes when a store is recovered as of a seq.
# Bytes of records that make such a transaction long enough, however few the records are.
CUT_BYTES: Final = 32 * 1024**2

# Bytes of the record.
SALT_BYTES: Final = 16
SEED_BYTES: Final = 32  # The seed from which the salts of a commit are derived.
# Events of one record: a record ends after ``RECORD_EVENTS`` events, or once it is ``RECORD_BYTES`` long. It takes
# more, up to ``RECORD_EVENTS_MAX``, while its last page has room for them, so that no part of a page stays empty.
RECORD_EVENTS: Final = 64
RECORD_EVENTS_MAX: Final = 96
RECORD_BYTES: Final = 32 * 1024
HASH_BYTES: Final = 32
KEYED_HASH_BYTES: Final = 16
STORE_ID_BYTES: Final = 16
HASH_KEY_BYTES: Final = 32
ID_HEX_CHARS: Final = 20  # 80 random bits: among a billion ids the chance of one collision is under one in a million.
LMDB_KEY_BYTES_MAX: Final = 511
# A data file up to this size is walked as bytes, at 2 ms per MB, before LMDB follows the pointers in it; opening a
# larger one would take too long.
STRUCTURE_BYTES_MAX: Final = 4 * 1024**2
SEQ_BYTES: Final = 8
BRANCH_BYTES: Final = 4

# LMDB.
MAP_BYTES: Final = 1024**4  # Address space, not disk: the file grows as it is written.
# Free address space to begin with if the system does not grant ``MAP_BYTES``; doubled whenever it is full.
MAP_BYTES_MIN: Final = 64 * 1024**2
# The smallest step that is tried if the system does not grant a map of twice the size.
MAP_STEP_BYTES_MIN: Final = 4 * 1024**2
MAP_WAIT_SECONDS: Final = 0.002  # How long a thread waits at a time for another thread that changes the map.
# How often a transaction is restarted because the map or the reader table changed under it.
RETRIES_COUNT_MAX: Final = 4
# A log on a server.
FOLLOW_SECONDS: Final = 1.0  # How long its follower waits at a time for other machines to write.
RECONNECT_SECONDS_MAX: Final = 15  # How long a commit is retried after its connection is lost: longer than an election.
CLOCK_SECONDS_MAX: Final = 2  # How far a server's clock can differ from this machine's before `refold doctor` warns.
# How far a copy can be behind its server before `health` reports it: also longer than an election.
LAG_SECONDS_MAX: Final = 30
CACHES_COUNT_MAX: Final = 256  # Local copies of one log, one for each process that has it open.

# Reader slots: one for each process, and for each of its threads that read at the same moment.
READERS_MAX: Final = 1_024
# LMDB's lock file: slots and a header, allocated ahead, because a write to a hole in it kills the process if the disk
# is full.
LOCK_BYTES: Final = READERS_MAX * 64 + 4_096
# Disk space that the smallest store reserves, so that it can erase when the disk is full: some hundred events.
BALLAST_BYTES_MIN: Final = 1024**2
# The reserve of the largest store; a store of up to half this size can be rewritten and copied whole.
BALLAST_BYTES_MAX: Final = 16 * 1024**2

# Warning thresholds of `refold doctor`.

# Free disk space; below VALUE_BYTES_MAX, where one value may not fit, it is more than a warning.
DISK_BYTES_MIN: Final = 1024**3
# Free pages of the file, if they also outnumber the used ones.
FREE_BYTES_MAX: Final = 256 * 1024 * 1024
# Commits since a reader began; as long as it reads, no page freed since then can be reused.
READER_COUNT_MAX: Final = 1_000
OPEN_FILES_MIN: Final = 256  # Files that a process can have open; a store takes five.

assert BRANCH_BYTES + NAME_BYTES_MAX + len("conversation/") <= LMDB_KEY_BYTES_MAX
assert KEY_BYTES_MAX < VALUE_BYTES_MAX
assert 5 * VALUE_BYTES_MAX <= EVENT_BYTES_MAX <= DOCUMENT_BYTES_MAX // 6
assert SOURCES_COUNT_MAX * (SEQ_BYTES + 1) < VALUE_BYTES_MAX

# Memories of a project.

# Memories that one event of a decay or a pruning names; a larger result takes several events in one commit.
PAGE_MEMORIES_COUNT: Final = 4_096
REEMBEDDED_PAGE_COUNT: Final = 256  # Texts that are embedded and committed at once when a memory is re-embedded.
EMBEDDED_CHARS_MAX: Final = 4_000  # Characters of a message that are embedded; no model reads many more.
# How long messages wait to be embedded together; how long embedding pauses after a failure, doubling with each further
# one; how long closing a memory waits for an embedding in progress.
EMBED_LINGER_SECONDS: Final = 0.1
EMBED_PAUSE_SECONDS_MIN: Final = 1.0
EMBED_PAUSE_SECONDS_MAX: Final = 600.0
EMBED_CLOSE_SECONDS: Final = 10.0
# Up to this many new events of a project, the table of its vectors is brought up to date instead of rebuilt.
RECENT_CHANGES_COUNT: Final = 1_024
KEYWORDS_COUNT_MAX: Final = 4_096  # Keywords of one memory, given or found in its content.
CONTEXT_BYTES_MAX: Final = 65_536  # The excerpt that says where a memory came from, in UTF-8.
# How often the vectors of a project are laid out while other threads write to it, before those have to wait.
FILLS_COUNT_MAX: Final = 3

# Delayed durability.

# Writes that a crash can lose of a store opened with ``durability="delayed"``, as far as its disk keeps up.
DELAY_MS_MAX: Final = 50
TAIL_BYTES_MAX: Final = 32 * 1024**2  # Bytes in RAM that wait for the disk; over this, a writer waits as well.

# Erasing.

# Seqs that one ``erased`` event names; a larger erasure writes several events in one commit.
ERASED_SEQS_COUNT: Final = 4_096
ERASED_CHARS_MIN: Final = 4
"""The fewest characters of a text given to erase every event that contains it."""

# A shorter text or value is not searched for after an erasure: too many others hold the same bytes by chance.
MARKER_BYTES_MIN: Final = 16
# How often one text, in one form and one file, is counted in a receipt; a higher count would say no more.
OCCURRENCES_COUNT_MAX: Final = 1_000
# How long opening a store waits for processes that create, close or replace it.
OPEN_WAIT_SECONDS_MAX: Final = 10

assert MARKER_BYTES_MIN >= 2 * SEQ_BYTES, "a marker covers an aligned word of eight bytes wherever it is"
assert LOCK_BYTES < BALLAST_BYTES_MIN < BALLAST_BYTES_MAX <= VALUE_BYTES_MAX < DISK_BYTES_MIN
assert MAP_STEP_BYTES_MIN < MAP_BYTES_MIN < MAP_BYTES
assert INLINE_BYTES_MAX < VALUE_BYTES_MAX < DOCUMENT_BYTES_MAX
assert CHECKPOINT_EVENTS < TAIL_EVENTS_MAX
assert FROZEN_STATES_MAX < PLACES_COUNT_MAX
assert WINDOW_TOKENS_DEFAULT <= WINDOW_TOKENS_MAX

# Searching for near vectors.

# Numbers in one vector that a caller gives, an embedder makes, or a table takes.
VECTOR_DIMENSIONS_MAX: Final = 8_192
FLOAT_BYTES: Final = 4  # One number of a vector.
QUERIES_COUNT_MAX: Final = 4_096  # Queries of one call; all are answered from one state, while writes continue.
QUERIES_BYTES_MAX: Final = 64 * 1024**2  # Bytes of products of the queries that are multiplied with all rows at once.
# RAM that the indexes of messages take before the least recently searched are dropped.
MESSAGES_BYTES_MAX: Final = 256 * 1024**2
GRAPHS_READ_COUNT: Final = 1  # Stored graphs that are read at once to be checked; each can take many megabytes.
# Memories of a project whose rows are stored packed; for fewer, reading the log is as fast.
PACKED_ROWS_MIN: Final = 128
# Larger tables are filled from the log, so that no thread waits for packing them.
PACKED_ROWS_BYTES_MAX: Final = 64 * 1024**2
KNOWN_EVENTS_COUNT: Final = 256  # Events whose messages are kept, split into terms, in one row.
KNOWN_ROWS_COUNT: Final = 8  # Such rows that are built at once, while other threads wait.
CHANGED_EVENTS_COUNT: Final = 4_096  # Events after packed rows that are read to bring them up to date.
# The divisors of the shares of ``memory_bytes`` that the vectors of projects, with their memories, and those of
# episodes can take, and of the share that is always left for loaded streams.
INDEX_PARTS_COUNT: Final = 2
EPISODES_PARTS_COUNT: Final = 8
LOADED_PARTS_COUNT: Final = 4
SCENARIO_PARTS_COUNT: Final = 4
"""The divisor of the share of ``memory_bytes`` that each scenario can take."""

FROZEN_PARTS_COUNT: Final = (
    8  # The divisor of the share of ``memory_bytes`` for states at earlier seqs; the last one is always kept.
)

assert 1 / INDEX_PARTS_COUNT + 1 / EPISODES_PARTS_COUNT + 1 / LOADED_PARTS_COUNT + 1 / FROZEN_PARTS_COUNT <= 1

# Files of skills and of mirrors.

# A skill file, a convention file, or a file that a detection looks into; a larger one is named but not read.
SKILL_FILE_BYTES_MAX: Final = 1024**2
SKILL_DEPTH_COUNT_MAX: Final = 8  # Nested directories that are entered in search of skill files.
SKILL_DIRECTORIES_COUNT_MAX: Final = 4_096  # Directories that one search for skill files enters.
SKILL_FILES_COUNT_MAX: Final = 4_096  # Markdown files that one search takes.

assert SKILL_FILE_BYTES_MAX < VALUE_BYTES_MAX
assert SKILL_DEPTH_COUNT_MAX < SKILL_DIRECTORIES_COUNT_MAX

# A file of a mirror that is read; one note or value, which is what a person can add to it, fits.
MIRROR_FILE_BYTES_MAX: Final = VALUE_BYTES_MAX
MIRROR_FILES_COUNT_MAX: Final = 100_000  # Day files that a mirror looks at: 273 years of them.
# State that a mirror keeps about its files: digests, eight bytes per line.
MIRROR_STATE_BYTES_MAX: Final = 256 * 1024 * 1024

assert MIRROR_FILE_BYTES_MAX <= VALUE_BYTES_MAX < MIRROR_STATE_BYTES_MAX

# Tools of a model.
TOOLS_COUNT_MAX: Final = 128  # Tools of one registry: as many as the providers accept in a request.
TOOL_NAME_CHARS_MAX: Final = 64  # Characters of a tool's name: the lowest limit of any provider.
TOOL_SCHEMA_BYTES_MAX: Final = 64 * 1024  # The JSON schema of a tool's arguments.
# The arguments of one call as JSON; a model that writes more has gone astray.
TOOL_ARGUMENTS_BYTES_MAX: Final = 1024 * 1024
TOOL_RESULT_BYTES_MAX: Final = 16 * 1024 * 1024  # The result of one call, as JSON.
TOOL_MESSAGE_CHARS_MAX: Final = 16 * 1024  # The message of a failed call, for a model; a longer one is cut.

assert TOOL_NAME_CHARS_MAX < TOOL_MESSAGE_CHARS_MAX < TOOL_SCHEMA_BYTES_MAX
assert TOOL_SCHEMA_BYTES_MAX < TOOL_ARGUMENTS_BYTES_MAX < TOOL_RESULT_BYTES_MAX <= VALUE_BYTES_MAX

# Contexts of a model.
CONTEXT_TOKENS_DEFAULT: Final = 5_500  # All parts of a context together, without the system prompt and messages.
LOCAL_CONTEXT_TOKENS: Final = 1_500  # The same for local models, whose windows are small.
CONTEXT_CHARS_MAX: Final = 16 * 1024 * 1024  # The most that a budget can allow, in characters, tokens or memories.
CONTEXT_DAYS: Final = 3  # Calendar days whose notes are in a context.
PROFILE_CHARS_DEFAULT: Final = 8_000
NOTES_CHARS_DEFAULT: Final = 8_000
MEMORIES_CHARS_DEFAULT: Final = 32_000  # As much as the tokens of a context hold, which are the real bound.
SESSION_CHARS_DEFAULT: Final = 2_000
MESSAGES_CHARS_DEFAULT: Final = 32_000
EARLIER_MESSAGES_COUNT: Final = 20_000  # The newest messages of a project in which a context looks for earlier ones.
# The newest events of a store among which these are; the first context of a process scans them in about a second.
EARLIER_EVENTS_COUNT: Final = 500_000
EPISODES_COUNT_DEFAULT: Final = 2
EPISODES_RECENT_COUNT: Final = 256  # The newest sessions in which a context looks for ones like a query.
INJECTED_CHARS_DEFAULT: Final = 4_000
INJECTED_MEMORIES_COUNT_MAX: Final = 1_000  # Memories that a command recalled, beside one message.
SCRATCHPAD_CHARS_DEFAULT: Final = 8_000
BOARD_CHARS_DEFAULT: Final = 8_000

assert CONTEXT_TOKENS_DEFAULT < PROFILE_CHARS_DEFAULT < CONTEXT_CHARS_MAX <= VALUE_BYTES_MAX
assert max(MEMORIES_CHARS_DEFAULT, NOTES_CHARS_DEFAULT, SESSION_CHARS_DEFAULT) < CONTEXT_CHARS_MAX

# Hooks.
HOOK_SECONDS_DEFAULT: Final = 30  # How long one hook can take before the session continues without it.
HOOK_SECONDS_MAX: Final = 3_600

assert HOOK_SECONDS_DEFAULT < HOOK_SECONDS_MAX

# Questions to a model.
PROVIDER_SECONDS_DEFAULT: Final = 30  # How long one question to a model can take, all its channels together.
PROVIDER_SECONDS_MAX: Final = 3_600

assert PROVIDER_SECONDS_DEFAULT < PROVIDER_SECONDS_MAX

REPLY_BYTES_MAX: Final = 16 * 1024 * 1024  # The answer of a provider.
REPLY_TOKENS_DEFAULT: Final = 2_048  # Tokens in a model's answer.
REPLY_CHARS_MAX: Final = 1024 * 1024  # Characters of a model's answer that are searched for JSON.
JSON_BEGINNINGS_COUNT_MAX: Final = 64  # Brackets of a model's answer at which a JSON value is tried.

# Extraction.
EXTRACTED_CONTEXT_CHARS_MAX: Final = 300  # The words of a conversation that are kept with a memory made from them.
EXTRACTED_CHARS_MAX: Final = 2_000  # One memory by a model; a longer one is not a concise statement.
EXTRACTED_COUNT_MAX: Final = 50  # Memories of one extraction.
# Characters of a conversation in one question to a model; a longer one is read in pages.
EXTRACTION_CHARS_MAX: Final = 24_000
# Characters of each other section of the question: the task, the files, the findings, the known memories.
EXTRACTION_SECTION_CHARS_MAX: Final = 8_000
# Events before the start of a conversation that are searched for memories recalled for it.
ECHO_EVENTS_COUNT_MAX: Final = 1_000
EXTRACTION_PAGES_COUNT_MAX: Final = 8  # Pages that one extraction reads; the rest waits for the next one.
KNOWN_COUNT_MAX: Final = 50  # Known memories in a question to a model: the most important ones.

assert EXTRACTED_CHARS_MAX < EXTRACTION_SECTION_CHARS_MAX < EXTRACTION_CHARS_MAX < REPLY_CHARS_MAX < REPLY_BYTES_MAX

# The loop.
LOOP_STEPS_COUNT_DEFAULT: Final = 20  # Requests to a model for one message of a user.
LOOP_FAILURES_COUNT_MAX: Final = 3  # Failures of the same call in a turn, after which the turn ends.
# How long a request that is sent again waits for the turn that answers it. That turn may itself wait for the request:
# by a thread of a pool, say.
LOOP_WAIT_SECONDS_MAX: Final = 60

assert LOOP_STEPS_COUNT_DEFAULT < TOOLS_COUNT_MAX

# Skills.
SKILL_FRONT_BYTES_MAX: Final = 64 * 1024  # The YAML at the head of a skill file, in UTF-8.
SKILL_FRONT_VALUES_COUNT_MAX: Final = 4_096  # Keys and values of that YAML.
SKILL_NESTING_COUNT_MAX: Final = 32  # Nesting of lists and mappings in that YAML.
SKILL_NAME_CHARS_MAX: Final = 64  # The name of a skill, per the Agent Skills specification.
SKILL_DESCRIPTION_CHARS_MAX: Final = 1_024  # The description of a skill, per the specification.
SKILL_COMPATIBILITY_CHARS_MAX: Final = 500  # A skill's statement of where it runs, per the specification.
SKILL_NOTE_BYTES_MAX: Final = 1_024  # A user's note on a skill, in UTF-8; models see it whenever they see the skill.
SKILL_SETTING_COUNT_MAX: Final = 10_000  # Skills, and lines of each, that a configuration can ask for.
SKILL_WORDS_COUNT_MAX: Final = 65_536  # Words of queries whose weight in each skill is cached for the next query.
SKILL_SCORERS_COUNT_MAX: Final = 4  # Rankings whose scorer of an index is cached for the next query.
# Sentences of a message that are compared with skills: from its beginning and its end.
SKILL_SENTENCES_COUNT_MAX: Final = 64

assert SKILL_NAME_CHARS_MAX < SKILL_COMPATIBILITY_CHARS_MAX < SKILL_DESCRIPTION_CHARS_MAX < SKILL_FRONT_BYTES_MAX
assert SKILL_FRONT_BYTES_MAX < SKILL_FILE_BYTES_MAX

# Mirrors.

# How often an open mirror checks its files; an edit is taken when two checks in a row saw the same file.
MIRROR_POLL_MS: Final = 500
# How often a round is restarted because the log or a file changed while it was being decided.
MIRROR_REDO_COUNT_MAX: Final = 64
# Writes of a profile's file that an editor may have missed when it saves an older copy.
MIRROR_RECENT_COUNT_MAX: Final = 256

assert POLL_MS < MIRROR_POLL_MS

# Remote tools.
MCP_CONNECT_SECONDS_DEFAULT: Final = 30.0  # How long starting a server and listing its tools can take.
MCP_CALL_SECONDS_DEFAULT: Final = 60.0  # How long one call can take, including a connection that has to be made again.
MCP_SECONDS_MAX: Final = 3_600.0
# How long a server can take to exit by itself, and again after it was asked to, before it is killed.
MCP_END_SECONDS: Final = 1.0
# One message of a server; after a larger one, nothing on the connection can be trusted.
MCP_MESSAGE_BYTES_MAX: Final = 2 * TOOL_RESULT_BYTES_MAX
MCP_NESTED_COUNT_MAX: Final = 1_000_000  # Objects and arrays in it: three bytes of JSON take a hundred in memory.
# The result of one call; a larger one would leave a model no room for anything else.
MCP_RESULT_BYTES_DEFAULT: Final = 1024 * 1024
MCP_TOOLS_COUNT_MAX: Final = TOOLS_COUNT_MAX  # Tools of one server.
MCP_LIST_BYTES_MAX: Final = 8 * 1024 * 1024  # Names, descriptions and schemas of all tools of one server.
MCP_PAGES_COUNT_MAX: Final = 64  # Pages of a server's list of tools; an endless list would hang the connection.
MCP_ATTEMPTS_COUNT_MAX: Final = 5  # Attempts to connect again before a call or a reconnection gives up.
MCP_FIRST_WAIT_SECONDS: Final = 0.5  # The wait after the first failed attempt; each further one is twice as long.
MCP_WAIT_SECONDS_MAX: Final = 30.0
MCP_DESCRIPTION_CHARS_MAX: Final = 4_096  # Characters of a tool's description.
# The end of a server's standard error, which is shown when the server fails.
MCP_COMPLAINT_CHARS_MAX: Final = 2_000
# Requests of a server whose answers it has not read; over this, the server only asks and never reads.
MCP_ASKED_COUNT_MAX: Final = 1_024
# Seconds for a connection to end by itself, before it is cancelled.
MCP_CLOSE_SECONDS: Final = 5 * MCP_END_SECONDS
# Consecutive calls over HTTP without an answer, after which a new connection is made, because each holds a request
# open.
MCP_UNANSWERED_COUNT_MAX: Final = 8
# The length from which values of environments and headers are taken for secrets and left out of messages; a shorter one
# is a flag.
MCP_SECRET_CHARS_MIN: Final = 6
MCP_SCHEMA_DEPTH_MAX: Final = 24  # Nested schemas; deeper ones are described but not checked.
MCP_SCHEMA_PARTS_COUNT_MAX: Final = 4_096  # Schemas inside one schema, with each reference counted wherever it is used.
# A schema as a server sends it; nothing of a larger one is read.
MCP_SCHEMA_BYTES_MAX: Final = 16 * TOOL_SCHEMA_BYTES_MAX
# Properties of all alternatives of an object times the number of its alternatives; over this, they are not joined.
MCP_ALTERNATIVES_COUNT_MAX: Final = 2**18
MCP_CHECKS_COUNT_MAX: Final = 100_000  # Steps in checking one result against its schema: about a tenth of a second.
MCP_NOTE_CHARS_MAX: Final = 500  # The note in a description about a rule that providers do not accept.

assert MCP_CONNECT_SECONDS_DEFAULT <= MCP_CALL_SECONDS_DEFAULT <= MCP_SECONDS_MAX
assert MCP_FIRST_WAIT_SECONDS < MCP_WAIT_SECONDS_MAX < MCP_CALL_SECONDS_DEFAULT
assert TOOL_SCHEMA_BYTES_MAX < MCP_RESULT_BYTES_DEFAULT <= TOOL_RESULT_BYTES_MAX < MCP_MESSAGE_BYTES_MAX
assert TOOL_SCHEMA_BYTES_MAX < MCP_SCHEMA_BYTES_MAX < MCP_MESSAGE_BYTES_MAX
assert MCP_SCHEMA_PARTS_COUNT_MAX < MCP_ALTERNATIVES_COUNT_MAX
assert 3 * MCP_END_SECONDS < MCP_CLOSE_SECONDS
assert MCP_NOTE_CHARS_MAX < MCP_DESCRIPTION_CHARS_MAX

# The server.
LISTED_COUNT_MAX: Final = 100  # Conversations or projects on one page of a list, and values of one completion.
PAGE_EVENTS_MAX: Final = 500  # Events on one page of a conversation's events; fewer if they are large.
PAGE_ENTRIES_MAX: Final = 500  # Memories on one page of a project's memories; fewer if they are large.
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024  # Events or memories as JSON on one page; the first is shown whatever its size.
RECENT_DAYS: Final = 30  # Days whose notes are listed and completed.
RECALL_COUNT_DEFAULT: Final = 10  # Memories that the prompt ``recall`` shows.
LINE_BYTES_MAX: Final = VALUE_BYTES_MAX  # One message over stdio; a longer one is skipped and answered with an error.
LINES_COUNT_MAX: Final = 16  # Messages that were read and wait; beyond these, the client waits.
# Requests over stdio without an answer yet, each counted as at least ``REQUEST_BYTES_MIN``; further ones wait unread.
OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
REQUEST_BYTES_MIN: Final = 16 * 1024  # About what a small request takes in RAM until it is answered.
DRAIN_SECONDS: Final = 10  # How long requests from before stdin was closed can continue.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024  # One message over HTTP.
SESSIONS_COUNT_MAX: Final = 1_000  # Open sessions over HTTP.
CONNECTIONS_COUNT_MAX: Final = 1_000  # Open connections over HTTP.
REQUEST_SECONDS: Final = 10.0  # How long a request over HTTP can take to arrive completely.
READERS_COUNT: Final = 4  # Threads that read resources for clients; tools and prompts have others.
WATCHED_COUNT_MAX: Final = 1_000  # Resources that one connection can watch.
SHUTDOWN_SECONDS: Final = 1  # How long open streams can continue when the server ends.

assert TOOL_ARGUMENTS_BYTES_MAX < BODY_BYTES_MAX <= LINE_BYTES_MAX

# Streams stay open, and the SDK allows 1,024 of them; this leaves room for others.
assert 2 * 1_024 * REQUEST_BYTES_MIN <= OPEN_BYTES_MAX
assert LINE_BYTES_MAX <= OPEN_BYTES_MAX
assert PAGE_BYTES_MAX <= VALUE_BYTES_MAX

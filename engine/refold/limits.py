"""The bounds of refold, their units last; relations between them are asserted next to them.

A bound lives here and nowhere else, so that an error message, a document and a test can name it.
"""

from typing import Final

# What a caller may pass.

# A conversation id, project, profile or journal name, in UTF-8: it is part of an LMDB key, which holds 511 bytes.
NAME_BYTES_MAX: Final = 400
KEY_BYTES_MAX: Final = 4_096  # A key of the scratchpad, the state scopes or a profile, in UTF-8.
ACTOR_BYTES_MAX: Final = 200  # The name of an actor, in UTF-8.
# One value: a text, or a JSON value as msgpack. A larger one belongs in a file whose name is remembered.
VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
# One event with all its texts, lists and vectors. As JSON, where a character may take six, it fits a line of an export.
EVENT_BYTES_MAX: Final = 80 * 1024 * 1024
JSON_DEPTH_MAX: Final = 64  # Nesting of lists and objects in metadata, message parts, tool calls and state values.
SOURCES_COUNT_MAX: Final = 4_096  # How many events one event may name as its sources.
REQUEST_BYTES_MAX: Final = 1_024  # A request id, in UTF-8. Only its keyed hash is stored.
# A JSON document that an import reads: a conversation, or a file that is one document. It is in RAM at once.
DOCUMENT_BYTES_MAX: Final = 512 * 1024 * 1024
BATCH_EVENTS_MAX: Final = 1_000_000  # Events of one batch: they are in RAM until the block ends.
# Forks of forks of whole memories: how many may lie between one and its origin.
BASE_DEPTH_MAX: Final = 64
TIME_NS_MAX: Final = 2**63 - 1  # A time in nanoseconds since 1970, as a signed number of 64 bits.

# Token budgets.
WINDOW_TOKENS_DEFAULT: Final = 128_000
WINDOW_TOKENS_MAX: Final = 2**40
MESSAGE_TOKENS_MAX: Final = 2**40

# How the log is folded, checkpointed and read.

# A stream gets a checkpoint row after this many events; after more where its last row was large: one for each event
# that the row pointed at, and one for so many bytes in it. So the rows of a stream that only grows take room in
# proportion to its events.
CHECKPOINT_EVENTS: Final = 256
CHECKPOINT_EVENT_BYTES: Final = 32
# Events behind the oldest stream without a checkpoint: what opening a store has to scan.
TAIL_EVENTS_MAX: Final = 50_000
CHECKPOINT_ROWS_MAX: Final = 500  # Checkpoint rows that one transaction writes when a store is flushed or closed.
# Streams that one commit packs, or twice as many as it has events, when the tail has grown too long.
PACKED_COUNT_MIN: Final = 32
INLINE_BYTES_MAX: Final = 256  # A value up to this size is in its checkpoint row; a larger one is pointed at.
# Events read, decoded and folded at a time; no read transaction is open longer than one page takes.
PAGE_EVENTS: Final = 256
# What the loaded streams of one memory and the vectors that are searched may take in RAM together.
MEMORY_BYTES_DEFAULT: Final = 512 * 1024 * 1024
MEMORY_BYTES_MIN: Final = 1024 * 1024
# A verification: the states that it folds anew, in addition to the loaded ones, take one of so many parts of
# ``memory_bytes``; a repeated event is found among so many behind it; so many earlier links are tried to find the one
# that a stale one goes on from.
VERIFY_PARTS_COUNT: Final = 4
RECENT_EVENTS_COUNT: Final = 65_536
STALE_LINKS_COUNT: Final = 1_000_000
VERIFY_JOBS_COUNT_MAX: Final = 64
# What a loaded stream takes beside its events, for slot, names, states and their containers; and an event in RAM beside
# the bytes of its record, for the objects that they are decoded into.
STREAM_OVERHEAD_BYTES: Final = 3_000
EVENT_OVERHEAD_BYTES: Final = 500
# Memories of a project that one commit packs for a checkpoint row, or twice as many as it has events.
PACKED_SLICE_COUNT: Final = 512
# How many streams may leave RAM after a commit, or twice as many as it has events, if that is more.
EVICTED_COUNT_MIN: Final = 32
# How often streams come into RAM or leave it before the log lets go of the pages that it has read.
RELIEVED_COUNT: Final = 64
SEEDS_COUNT: Final = 64  # Seeds of salts that are drawn at once for the commits to come.
# How often a read lets others run until this process's own commit is folded, when another's came behind it.
SETTLE_COUNT_MAX: Final = 1_000
GROUP_COUNT_MAX: Final = 1_024  # Callers whose events one commit takes together; the rest waits for the next one.
# A commit of fewer callers does not wait for them to come back: they may be all there are.
LINGER_CALLERS_COUNT_MIN: Final = 4
# How long a commit waits at most for the callers of those before it: half of what the last one took, and no longer.
LINGER_NS_MAX: Final = 10_000_000
LINGER_LOOKS_COUNT: Final = 16  # How often it looks meanwhile whether they are there.
LINGER_LATE_COUNT_MAX: Final = 256  # For how many commits callers that come back too late are not waited for, at most.
AIO_QUEUE_COUNT_MAX: Final = 100_000  # Mutations of one event loop that may wait to be written.
TURN_SECONDS_MAX: Final = 20  # How long a turn at the log that others were quicker to take is tried for.
TURNS_COUNT_MIN: Final = 16  # How many are tried at least: a server that stood still may have taken the time of one.
# How long a caller waits for its turn to be written before it is refused because the store is busy.
COMMIT_WAIT_SECONDS_MAX: Final = 30
BELL_SECONDS: Final = 0.05  # How long a caller sleeps at most until it looks whether its mutation was written.
# How long an event that another process wrote may wait for the subscribers of this one, if nothing wakes them.
POLL_MS: Final = 20
# How often a decision that takes in a whole memory is made anew because others wrote to it meanwhile.
REDO_COUNT_MAX: Final = 64
ATTEMPTS_COUNT_MAX: Final = 1_000_000  # The same, as the caller of a transaction may choose it.
# How often a witness gets the position of the log; with what a flush takes, it lags less than a second.
WITNESS_MS: Final = 500
# How long a writer of a witness waits for another process that does: a millisecond, if that one is not stopped.
WITNESS_WAIT_SECONDS_MAX: Final = 2
FROZEN_STATES_MAX: Final = 64  # States at earlier seqs that the engine keeps for repeated reads.
PLACES_COUNT_MAX: Final = 1_024  # Places of streams at earlier seqs that are cached for repeated reads.
CUT_ROWS: Final = 10_000  # Rows that one transaction takes when a store is recovered as it was at a seq.
CUT_BYTES: Final = 32 * 1024**2  # Records of so many bytes make such a transaction long enough, however few they are.

# Bytes of the record.
SALT_BYTES: Final = 16
SEED_BYTES: Final = 32  # What the salts of a commit are derived from.
# Events of one record: it is ended behind so many, or as soon as it is so long, but takes more while its last page has
# room for them, so that nothing of a page stays empty.
RECORD_EVENTS: Final = 64
RECORD_EVENTS_MAX: Final = 96
RECORD_BYTES: Final = 32 * 1024
HASH_BYTES: Final = 32
KEYED_HASH_BYTES: Final = 16
STORE_ID_BYTES: Final = 16
HASH_KEY_BYTES: Final = 32
ID_HEX_CHARS: Final = 20  # 80 random bits: among a billion ids the chance of one collision is under one in a million.
LMDB_KEY_BYTES_MAX: Final = 511
# A data file up to this size is walked as bytes, at 2 ms a MB, before LMDB follows the pointers in it: opening a
# larger one would take too long.
STRUCTURE_BYTES_MAX: Final = 4 * 1024**2
SEQ_BYTES: Final = 8
BRANCH_BYTES: Final = 4

# LMDB.
MAP_BYTES: Final = 1024**4  # Address space, not disk: the file grows as it is written.
# Free address space to begin with where the system does not grant ``MAP_BYTES``; doubled whenever it is full.
MAP_BYTES_MIN: Final = 64 * 1024**2
# The smallest step that is tried when the system does not grant to double the map.
MAP_STEP_BYTES_MIN: Final = 4 * 1024**2
MAP_WAIT_SECONDS: Final = 0.002  # How long a thread waits at a time for another that changes the map.
# How often a transaction begins anew because the map or the table of readers changed under it.
RETRIES_COUNT_MAX: Final = 4
# A log on a server.
FOLLOW_SECONDS: Final = 1.0  # How long its follower waits at a time for what other machines write.
RECONNECT_SECONDS_MAX: Final = 15  # How long a commit is tried again once its connection is lost: past an election.
CLOCK_SECONDS_MAX: Final = 2  # How far the clock of a server may be from this machine's before `refold doctor` warns.
LAG_SECONDS_MAX: Final = 30  # How far a copy may be behind its server before `health` says so; past an election, too.
CACHES_COUNT_MAX: Final = 256  # Local copies of one log, one for each process that has it open.

READERS_MAX: Final = 1_024  # Places for processes, one for each, and for their threads that read at the same moment.
# LMDB's lock file: places and a head, allocated ahead, because on a full disk a write to a hole in it kills.
LOCK_BYTES: Final = READERS_MAX * 64 + 4_096
# Bytes of the disk that the smallest store reserves for erasing when the disk is full: some hundred events.
BALLAST_BYTES_MIN: Final = 1024**2
# The reserve of the largest store; up to half of this, all of a store can be rewritten and copied.
BALLAST_BYTES_MAX: Final = 16 * 1024**2

# What `refold doctor` warns of.

# Free disk space; under VALUE_BYTES_MAX, where one value may not fit, it is more than a warning.
DISK_BYTES_MIN: Final = 1024**3
# Pages of the file that hold nothing, if they are also more than those that do.
FREE_BYTES_MAX: Final = 256 * 1024 * 1024
# Commits since a reader began: as long as it reads, no page that was freed since can be used again.
READER_COUNT_MAX: Final = 1_000
OPEN_FILES_MIN: Final = 256  # Files that a process may have open; a store takes five.

assert BRANCH_BYTES + NAME_BYTES_MAX + len("conversation/") <= LMDB_KEY_BYTES_MAX
assert KEY_BYTES_MAX < VALUE_BYTES_MAX
assert 5 * VALUE_BYTES_MAX <= EVENT_BYTES_MAX <= DOCUMENT_BYTES_MAX // 6
assert SOURCES_COUNT_MAX * (SEQ_BYTES + 1) < VALUE_BYTES_MAX

# Memories of a project.

# How many memories one event of a decay or a pruning names; a larger outcome takes several in one commit.
PAGE_MEMORIES_COUNT: Final = 4_096
REEMBEDDED_PAGE_COUNT: Final = 256  # How many texts are embedded and committed at once when a memory is embedded anew.
EMBEDDED_CHARS_MAX: Final = 4_000  # Characters of a message that are embedded: no model reads many more of them.
# How long messages wait to be embedded together; how long nothing is embedded after a failure, twice as long after each
# further one; how long a memory that is closed waits for what is being embedded.
EMBED_LINGER_SECONDS: Final = 0.1
EMBED_PAUSE_SECONDS_MIN: Final = 1.0
EMBED_PAUSE_SECONDS_MAX: Final = 600.0
EMBED_CLOSE_SECONDS: Final = 10.0
# Events of a project after which a table of its vectors is still brought up to date instead of built anew.
RECENT_CHANGES_COUNT: Final = 1_024
KEYWORDS_COUNT_MAX: Final = 4_096  # Keywords of one memory, given or found in its content.
CONTEXT_BYTES_MAX: Final = 65_536  # The excerpt that says where a memory came from, in UTF-8.
# How often the vectors of a project are laid out while others write to it, before they have to wait for it.
FILLS_COUNT_MAX: Final = 3

# Delayed durability.

# Writes that a crash may take of a store opened with ``durability="delayed"``, as far as its disk keeps up.
DELAY_MS_MAX: Final = 50
TAIL_BYTES_MAX: Final = 32 * 1024**2  # Bytes in RAM that wait for the disk; a writer that comes then waits as well.

# Erasing.

# How many seqs one ``erased`` event names; a larger erasure writes several in one commit.
ERASED_SEQS_COUNT: Final = 4_096
# A shorter text or value is not looked for after an erasure: too many others hold the same bytes by chance.
ERASED_CHARS_MIN: Final = 4
"""The characters of a text that every event with it is erased for, at least."""

MARKER_BYTES_MIN: Final = 16
# How often one text, in one form and one file, is counted in a receipt; more say no more than that it is there.
OCCURRENCES_COUNT_MAX: Final = 1_000
# How long opening a store waits for those that create, close or replace it.
OPEN_WAIT_SECONDS_MAX: Final = 10

assert MARKER_BYTES_MIN >= 2 * SEQ_BYTES, "a marker covers an aligned word of eight bytes wherever it is"
assert LOCK_BYTES < BALLAST_BYTES_MIN < BALLAST_BYTES_MAX <= VALUE_BYTES_MAX < DISK_BYTES_MIN
assert MAP_STEP_BYTES_MIN < MAP_BYTES_MIN < MAP_BYTES
assert INLINE_BYTES_MAX < VALUE_BYTES_MAX < DOCUMENT_BYTES_MAX
assert CHECKPOINT_EVENTS < TAIL_EVENTS_MAX
assert FROZEN_STATES_MAX < PLACES_COUNT_MAX
assert WINDOW_TOKENS_DEFAULT <= WINDOW_TOKENS_MAX

# Looking for near vectors.

# Numbers of one vector: what a caller may give, an embedder may make, and a table takes.
VECTOR_DIMENSIONS_MAX: Final = 8_192
FLOAT_BYTES: Final = 4  # One number of a vector.
QUERIES_COUNT_MAX: Final = 4_096  # Queries of one call: all are answered of one state, which others change meanwhile.
QUERIES_BYTES_MAX: Final = 64 * 1024**2  # Products of the queries that are multiplied with all rows at once.
MESSAGES_BYTES_MAX: Final = 256 * 1024**2  # What the indexes of messages take in RAM before the oldest are dropped.
GRAPHS_READ_COUNT: Final = 1  # How many stored graphs are read at once to be checked: each may be of many megabytes.
PACKED_ROWS_MIN: Final = 128  # Memories of a project whose rows are stored packed: fewer are filled as fast.
PACKED_ROWS_BYTES_MAX: Final = 64 * 1024**2  # Rows that take more are filled from the log: nobody waits for so much.
KNOWN_EVENTS_COUNT: Final = 256  # Events whose messages are kept split into terms in one row.
KNOWN_ROWS_COUNT: Final = 8  # Such rows that are made at once, while others wait.
CHANGED_EVENTS_COUNT: Final = 4_096  # Events behind packed rows that are read to bring them up to date.
# What of ``memory_bytes`` the vectors of projects, with their memories, and those of episodes may take, and what stays
# for loaded streams in any case: one part of so many.
INDEX_PARTS_COUNT: Final = 2
EPISODES_PARTS_COUNT: Final = 8
LOADED_PARTS_COUNT: Final = 4
SCENARIO_PARTS_COUNT: Final = 4
"""The part of ``memory_bytes`` that each scenario may take is one in so many."""

FROZEN_PARTS_COUNT: Final = (
    8  # The part of ``memory_bytes`` that states at earlier seqs may take, but for the last one.
)

assert 1 / INDEX_PARTS_COUNT + 1 / EPISODES_PARTS_COUNT + 1 / LOADED_PARTS_COUNT + 1 / FROZEN_PARTS_COUNT <= 1

# Files of skills and of mirrors.

# A skill file, a convention file, or a file that a detection looks into; a larger one is named and not read.
SKILL_FILE_BYTES_MAX: Final = 1024**2
SKILL_DEPTH_COUNT_MAX: Final = 8  # Directories inside each other that are entered in search of skill files.
SKILL_DIRECTORIES_COUNT_MAX: Final = 4_096  # Directories that one search for skill files enters.
SKILL_FILES_COUNT_MAX: Final = 4_096  # Markdown files that one search takes.

assert SKILL_FILE_BYTES_MAX < VALUE_BYTES_MAX
assert SKILL_DEPTH_COUNT_MAX < SKILL_DIRECTORIES_COUNT_MAX

# A file of a mirror that is read: one note or value, which is what a hand may add to it, fits.
MIRROR_FILE_BYTES_MAX: Final = VALUE_BYTES_MAX
MIRROR_FILES_COUNT_MAX: Final = 100_000  # Files of days that a mirror looks at: 273 years of them.
MIRROR_STATE_BYTES_MAX: Final = 256 * 1024 * 1024  # What a mirror keeps of its files: digests, eight bytes for a line.

assert MIRROR_FILE_BYTES_MAX <= VALUE_BYTES_MAX < MIRROR_STATE_BYTES_MAX

# Tools of a model.
TOOLS_COUNT_MAX: Final = 128  # Tools of one registry: as many as the providers take in a request.
TOOL_NAME_CHARS_MAX: Final = 64  # Characters of a tool's name: the least that a provider allows.
TOOL_SCHEMA_BYTES_MAX: Final = 64 * 1024  # The JSON schema of a tool's arguments.
# The arguments of one call as JSON: a model that writes more has gone astray.
TOOL_ARGUMENTS_BYTES_MAX: Final = 1024 * 1024
TOOL_RESULT_BYTES_MAX: Final = 16 * 1024 * 1024  # What one call returns, as JSON.
TOOL_MESSAGE_CHARS_MAX: Final = 16 * 1024  # The message of a call that failed, for a model; a longer one is cut.

assert TOOL_NAME_CHARS_MAX < TOOL_MESSAGE_CHARS_MAX < TOOL_SCHEMA_BYTES_MAX
assert TOOL_SCHEMA_BYTES_MAX < TOOL_ARGUMENTS_BYTES_MAX < TOOL_RESULT_BYTES_MAX <= VALUE_BYTES_MAX

# Contexts of a model.
CONTEXT_TOKENS_DEFAULT: Final = 5_500  # The parts of a context together, without system prompt and messages.
LOCAL_CONTEXT_TOKENS: Final = 1_500  # The same for models on one's own machine, whose windows are small.
CONTEXT_CHARS_MAX: Final = 16 * 1024 * 1024  # What a budget may allow, in characters, tokens or memories.
CONTEXT_DAYS: Final = 3  # Calendar days whose notes are in a context.
PROFILE_CHARS_DEFAULT: Final = 8_000
NOTES_CHARS_DEFAULT: Final = 8_000
MEMORIES_CHARS_DEFAULT: Final = 32_000  # As much as the tokens of a context hold: those are the bound.
SESSION_CHARS_DEFAULT: Final = 2_000
MESSAGES_CHARS_DEFAULT: Final = 6_000
# The newest events among which a context looks for earlier messages: what the first one of a process has to read.
EARLIER_EVENTS_COUNT: Final = 20_000
EPISODES_COUNT_DEFAULT: Final = 2
EPISODES_RECENT_COUNT: Final = 256  # The newest sessions among which a context looks for those like a query.
INJECTED_CHARS_DEFAULT: Final = 4_000
INJECTED_MEMORIES_COUNT_MAX: Final = 1_000  # What a command recalled, beside one message.
SCRATCHPAD_CHARS_DEFAULT: Final = 8_000
BOARD_CHARS_DEFAULT: Final = 8_000

assert CONTEXT_TOKENS_DEFAULT < PROFILE_CHARS_DEFAULT < CONTEXT_CHARS_MAX <= VALUE_BYTES_MAX
assert max(MEMORIES_CHARS_DEFAULT, NOTES_CHARS_DEFAULT, SESSION_CHARS_DEFAULT) < CONTEXT_CHARS_MAX

# Hooks.
HOOK_SECONDS_DEFAULT: Final = 30  # What one hook may take before the session goes on without it.
HOOK_SECONDS_MAX: Final = 3_600

assert HOOK_SECONDS_DEFAULT < HOOK_SECONDS_MAX

# Asking a model.
PROVIDER_SECONDS_DEFAULT: Final = 30  # What one question to a model may take, all its channels together.
PROVIDER_SECONDS_MAX: Final = 3_600

assert PROVIDER_SECONDS_DEFAULT < PROVIDER_SECONDS_MAX

REPLY_BYTES_MAX: Final = 16 * 1024 * 1024  # What a provider may answer with.
REPLY_TOKENS_DEFAULT: Final = 2_048  # Tokens that a model may answer with.
REPLY_CHARS_MAX: Final = 1024 * 1024  # Characters of a model's answer in which JSON is looked for.
JSON_BEGINNINGS_COUNT_MAX: Final = 64  # Brackets of a model's answer at which a JSON value is looked for.

# Extraction.
EXTRACTED_CONTEXT_CHARS_MAX: Final = 300  # What was said, beside a memory that was made of it.
EXTRACTED_CHARS_MAX: Final = 2_000  # One extracted memory: what is longer is no concise statement.
EXTRACTED_COUNT_MAX: Final = 50  # Memories of one extraction.
# Characters of a conversation in one question to a model; a longer one is read in pages.
EXTRACTION_CHARS_MAX: Final = 24_000
# Characters of each other section of the question: the task, the files, the findings, what is known.
EXTRACTION_SECTION_CHARS_MAX: Final = 8_000
# Events of the log before a conversation began in which it is looked for what was recalled for it.
ECHO_EVENTS_COUNT_MAX: Final = 1_000
EXTRACTION_PAGES_COUNT_MAX: Final = 8  # Pages that one extraction reads; what is left waits for the next.
KNOWN_COUNT_MAX: Final = 50  # Known memories in a question to a model, the most important ones.

assert EXTRACTED_CHARS_MAX < EXTRACTION_SECTION_CHARS_MAX < EXTRACTION_CHARS_MAX < REPLY_CHARS_MAX < REPLY_BYTES_MAX

# The loop.
LOOP_STEPS_COUNT_DEFAULT: Final = 20  # Requests to a model for one message of a user.
LOOP_FAILURES_COUNT_MAX: Final = 3  # Times that the same call may fail in a turn, after which the turn ends.

assert LOOP_STEPS_COUNT_DEFAULT < TOOLS_COUNT_MAX

# Skills.
SKILL_FRONT_BYTES_MAX: Final = 64 * 1024  # The YAML at the head of a skill file, in UTF-8.
SKILL_FRONT_VALUES_COUNT_MAX: Final = 4_096  # Keys and values of that YAML.
SKILL_NESTING_COUNT_MAX: Final = 32  # Lists and mappings inside each other in that YAML.
SKILL_NAME_CHARS_MAX: Final = 64  # The name of a skill, as the specification of Agent Skills has it.
SKILL_DESCRIPTION_CHARS_MAX: Final = 1_024  # The description of a skill, as the specification has it.
SKILL_COMPATIBILITY_CHARS_MAX: Final = 500  # What a skill says of where it runs, as the specification has it.
SKILL_NOTE_BYTES_MAX: Final = (
    1_024  # The note of a user on a skill, in UTF-8; models see it whenever they see the skill.
)
SKILL_SETTING_COUNT_MAX: Final = 10_000  # The skills, and the lines of each, that a configuration may ask for.
SKILL_WORDS_COUNT_MAX: Final = 65_536  # Words of queries whose weight in each skill is kept for the next query.
SKILL_SCORERS_COUNT_MAX: Final = 4  # Rankings whose look at an index is kept for the next query.
SKILL_SENTENCES_COUNT_MAX: Final = 64  # Sentences of a message that are compared with skills: of its begin and its end.

assert SKILL_NAME_CHARS_MAX < SKILL_COMPATIBILITY_CHARS_MAX < SKILL_DESCRIPTION_CHARS_MAX < SKILL_FRONT_BYTES_MAX
assert SKILL_FRONT_BYTES_MAX < SKILL_FILE_BYTES_MAX

# Mirrors.

# How often an open mirror looks at its files; an edit is taken when two looks in a row saw the same file.
MIRROR_POLL_MS: Final = 500
# How often one round begins anew because the log or a file moved while it was decided.
MIRROR_REDO_COUNT_MAX: Final = 64
# Writes of a profile's file that an editor may have missed when it saves an older copy.
MIRROR_RECENT_COUNT_MAX: Final = 256

assert POLL_MS < MIRROR_POLL_MS

# Remote tools.
MCP_CONNECT_SECONDS_DEFAULT: Final = 30.0  # What starting a server and listing its tools may take.
MCP_CALL_SECONDS_DEFAULT: Final = 60.0  # What one call may take, a connection that has to be made anew included.
MCP_SECONDS_MAX: Final = 3_600.0
# How long a server may take to end by itself, and again after it was asked to, before it is killed.
MCP_END_SECONDS: Final = 1.0
# One message of a server: over it, nothing of the connection can be trusted any more.
MCP_MESSAGE_BYTES_MAX: Final = 2 * TOOL_RESULT_BYTES_MAX
MCP_NESTED_COUNT_MAX: Final = 1_000_000  # Its objects and arrays: three bytes of JSON are a hundred in memory.
# What one call may return: a model that is given more has no room for anything else.
MCP_RESULT_BYTES_DEFAULT: Final = 1024 * 1024
MCP_TOOLS_COUNT_MAX: Final = TOOLS_COUNT_MAX  # Tools of one server.
MCP_LIST_BYTES_MAX: Final = 8 * 1024 * 1024  # Names, descriptions and schemas of all tools of one server.
MCP_PAGES_COUNT_MAX: Final = 64  # Pages of a server's list of tools: one that never ends would hang the connection.
MCP_ATTEMPTS_COUNT_MAX: Final = 5  # How often a connection is tried anew before a call or a reconnection gives up.
MCP_FIRST_WAIT_SECONDS: Final = 0.5  # The wait behind the first attempt that failed; each further one is twice as long.
MCP_WAIT_SECONDS_MAX: Final = 30.0
MCP_DESCRIPTION_CHARS_MAX: Final = 4_096  # Characters of a tool's description.
# The end of what a server wrote to its standard error, which is shown when it fails.
MCP_COMPLAINT_CHARS_MAX: Final = 2_000
# Requests of a server whose answers it has not read: over it, it is one that only asks.
MCP_ASKED_COUNT_MAX: Final = 1_024
# Seconds for a connection to end by itself, before its end is given up, too.
MCP_CLOSE_SECONDS: Final = 5 * MCP_END_SECONDS
# Calls over HTTP, one after another, that were not answered: a new connection is made, for each holds one open.
MCP_UNANSWERED_COUNT_MAX: Final = 8
# Values of an environment and of headers that are taken for secrets, and left out of messages; a shorter is a flag.
MCP_SECRET_CHARS_MIN: Final = 6
MCP_SCHEMA_DEPTH_MAX: Final = 24  # Schemas inside each other: what lies deeper is described and no longer checked.
MCP_SCHEMA_PARTS_COUNT_MAX: Final = 4_096  # Schemas inside of one, each reference counted wherever it is used.
# A schema as a server sends it: of one over it nothing is read.
MCP_SCHEMA_BYTES_MAX: Final = 16 * TOOL_SCHEMA_BYTES_MAX
# Properties of all alternatives of an object times its alternatives: over it, they are not joined.
MCP_ALTERNATIVES_COUNT_MAX: Final = 2**18
MCP_CHECKS_COUNT_MAX: Final = 100_000  # Steps of the check of one result against its schema: about a tenth of a second.
MCP_NOTE_CHARS_MAX: Final = 500  # What a description says of a rule that providers do not take.

assert MCP_CONNECT_SECONDS_DEFAULT <= MCP_CALL_SECONDS_DEFAULT <= MCP_SECONDS_MAX
assert MCP_FIRST_WAIT_SECONDS < MCP_WAIT_SECONDS_MAX < MCP_CALL_SECONDS_DEFAULT
assert TOOL_SCHEMA_BYTES_MAX < MCP_RESULT_BYTES_DEFAULT <= TOOL_RESULT_BYTES_MAX < MCP_MESSAGE_BYTES_MAX
assert TOOL_SCHEMA_BYTES_MAX < MCP_SCHEMA_BYTES_MAX < MCP_MESSAGE_BYTES_MAX
assert MCP_SCHEMA_PARTS_COUNT_MAX < MCP_ALTERNATIVES_COUNT_MAX
assert 3 * MCP_END_SECONDS < MCP_CLOSE_SECONDS
assert MCP_NOTE_CHARS_MAX < MCP_DESCRIPTION_CHARS_MAX

# The server.
LISTED_COUNT_MAX: Final = 100  # Conversations or projects of one page of a list, and values of one completion.
PAGE_EVENTS_MAX: Final = 500  # Events of one page of a conversation's events; fewer where they are large.
PAGE_ENTRIES_MAX: Final = 500  # Memories of one page of a project's memories; fewer where they are large.
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024  # Events or memories as JSON on one page; the first is shown whatever its size.
RECENT_DAYS: Final = 30  # Days whose notes are listed, and completed.
RECALL_COUNT_DEFAULT: Final = 10  # Memories that the prompt ``recall`` shows.
LINE_BYTES_MAX: Final = VALUE_BYTES_MAX  # One message over stdio; a longer one is skipped and answered with an error.
LINES_COUNT_MAX: Final = 16  # Messages that were read and wait; the client waits behind them.
# Requests over stdio that are not answered yet, each at least ``REQUEST_BYTES_MIN``; more wait unread.
OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
REQUEST_BYTES_MIN: Final = 16 * 1024  # About what a small request takes in RAM while it is not answered.
DRAIN_SECONDS: Final = 10  # How long requests of before stdin was closed may go on.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024  # One message over HTTP.
SESSIONS_COUNT_MAX: Final = 1_000  # Sessions over HTTP that are open at a time.
CONNECTIONS_COUNT_MAX: Final = 1_000  # Connections over HTTP that are open at a time.
REQUEST_SECONDS: Final = 10.0  # How long a request over HTTP may take to arrive whole.
READERS_COUNT: Final = 4  # Threads that read resources for clients; tools and prompts have others.
WATCHED_COUNT_MAX: Final = 1_000  # Resources that one connection may watch.
SHUTDOWN_SECONDS: Final = 1  # How long open streams may go on when the server ends.

assert TOOL_ARGUMENTS_BYTES_MAX < BODY_BYTES_MAX <= LINE_BYTES_MAX

# Streams stay open, and the SDK lets 1,024 be; there is room for others.
assert 2 * 1_024 * REQUEST_BYTES_MIN <= OPEN_BYTES_MAX
assert LINE_BYTES_MAX <= OPEN_BYTES_MAX
assert PAGE_BYTES_MAX <= VALUE_BYTES_MAX

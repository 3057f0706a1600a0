/**
 * The table of all flags, used by parsing, help, completion and the manual page. A flag with a `group` applies to every
 * command; the others belong to the commands that name them.
 */
import { UsageError } from './failures.ts'

export type Flag = {
  name: string
  short?: string
  /** The name of its value in help; absent: a switch without a value. */
  value?: string
  summary: string
  /** The heading in help; absent: a flag of single commands. */
  group?: 'Where' | 'Who' | 'Output' | 'Listings' | 'Other'
  /** Older names of the flag. */
  aliases?: readonly string[]
  /** Can be given several times. */
  isList?: boolean
  /** An empty value is content, and no unset variable of a shell. */
  mayBeEmpty?: boolean
}

export const FLAGS = [
  { name: 'url', value: 'URL', summary: 'address of every service (SKEIN_URL)', group: 'Where' },
  { name: 'manager-url', value: 'URL', summary: 'task manager (SKEIN_MANAGER_URL)', group: 'Where' },
  { name: 'users-url', short: 'u', value: 'URL', summary: 'users service', group: 'Where' },
  {
    name: 'clients-url',
    short: 't',
    value: 'URL',
    summary: 'clients service',
    group: 'Where',
    aliases: ['things-url'],
  },
  { name: 'channels-url', value: 'URL', summary: 'channels service', group: 'Where' },
  { name: 'groups-url', value: 'URL', summary: 'groups service', group: 'Where' },
  { name: 'domains-url', short: 'd', value: 'URL', summary: 'domains service', group: 'Where' },
  { name: 'invitations-url', short: 'v', value: 'URL', summary: 'invitations service', group: 'Where' },
  { name: 'http-url', short: 'p', value: 'URL', summary: 'HTTP adapter, where messages are sent', group: 'Where' },
  { name: 'reader-url', short: 'R', value: 'URL', summary: 'reader, where messages are read', group: 'Where' },
  { name: 'journal-url', short: 'a', value: 'URL', summary: 'journal service', group: 'Where' },
  { name: 'bootstrap-url', short: 'b', value: 'URL', summary: 'bootstrap service', group: 'Where' },
  { name: 'certs-url', short: 's', value: 'URL', summary: 'certificates service', group: 'Where' },
  { name: 'provision-url', value: 'URL', summary: 'provision service', group: 'Where' },
  { name: 'auth-url', value: 'URL', summary: 'API keys service', group: 'Where' },
  { name: 'host-url', short: 'H', value: 'URL', summary: 'base address of all other services', group: 'Where' },
  { name: 'insecure', short: 'i', summary: 'accept any TLS certificate', group: 'Where' },

  { name: 'domain', value: 'ID', summary: 'domain of the command (SKEIN_DOMAIN)', group: 'Who' },
  { name: 'context', value: 'NAME', summary: 'context of the command (SKEIN_CONTEXT)', group: 'Who' },
  { name: 'config', short: 'c', value: 'FILE', summary: 'configuration file (SKEIN_CONFIG)', group: 'Who' },

  {
    name: 'raw',
    short: 'r',
    summary: 'print JSON, and bare ids and times, on a terminal too',
    group: 'Output',
    aliases: ['json'],
  },
  { name: 'curl', short: 'x', summary: 'print each request as a curl line on stderr', group: 'Output' },

  { name: 'limit', short: 'l', value: 'N', summary: 'how many to list (10)', group: 'Listings' },
  { name: 'offset', short: 'o', value: 'N', summary: 'how many to skip (0)', group: 'Listings' },
  { name: 'all', summary: 'read all pages of a list', group: 'Listings' },
  { name: 'name', short: 'n', value: 'TEXT', summary: 'only names that contain this text', group: 'Listings' },
  { name: 'identity', short: 'I', value: 'TEXT', summary: 'username or email of a user', group: 'Listings' },
  {
    name: 'metadata',
    short: 'm',
    value: 'JSON',
    summary: 'only metadata that contains this object',
    group: 'Listings',
  },
  { name: 'status', short: 'S', value: 'STATUS', summary: 'enabled, disabled or all', group: 'Listings' },
  { name: 'window', value: 'WINDOW', summary: '1h, 6h or 24h' },
  { name: 'reported', value: 'JSON', summary: 'only clients that report at least this' },
  {
    name: 'out-of-sync',
    value: 'BOOL',
    summary: 'true: only clients that differ from what is desired; false: only the others',
  },
  { name: 'online', value: 'BOOL', summary: 'true: only clients that are online; false: only the others' },
  {
    name: 'state',
    short: 'z',
    value: 'STATE',
    summary: 'state of configurations, invitations or tasks',
    group: 'Listings',
  },
  { name: 'topic', short: 'T', value: 'TOPIC', summary: 'topic of a subscription', group: 'Listings' },
  { name: 'contact', short: 'C', value: 'CONTACT', summary: 'contact of a subscription', group: 'Listings' },
  { name: 'order', value: 'FIELD', summary: 'sort by name, created_at or updated_at', group: 'Listings' },
  { name: 'dir', value: 'DIR', summary: 'asc or desc', group: 'Listings' },
  {
    name: 'query',
    value: 'KEY=VALUE',
    summary: 'any other query parameter; repeatable',
    group: 'Listings',
    isList: true,
  },

  {
    name: 'content-type',
    short: 'y',
    value: 'TYPE',
    summary: 'content type of a sent message (application/senml+json)',
    group: 'Other',
  },
  { name: 'help', short: 'h', summary: 'help of a command, with an example', group: 'Other' },
  { name: 'version', short: 'V', summary: 'version of this program', group: 'Other' },

  { name: 'username', value: 'NAME', summary: 'username or email' },
  { name: 'password-stdin', summary: 'read the password from standard input' },
  { name: 'ttl', value: 'DURATION', summary: 'validity, such as 8760h' },
  { name: 'description', value: 'TEXT', summary: 'description', mayBeEmpty: true },
  { name: 'force', summary: 'force the operation (see the description)' },
  { name: 'follow', short: 'f', summary: 'follow until interrupted' },
  { name: 'inputs', value: 'INPUTS', summary: 'comma-separated numbers, or a JSON array' },
  { name: 'cli-args', value: 'ARGS', summary: 'comma-separated arguments of the module' },
  { name: 'function', value: 'NAME', summary: 'exported function to call' },
  { name: 'image', value: 'REFERENCE', summary: 'module in an OCI registry', aliases: ['image-url'] },
  { name: 'env', value: 'KEY=VALUE', summary: 'environment variable of the module; repeatable', isList: true },
  { name: 'stdin', value: 'TEXT', summary: 'standard input of the module', mayBeEmpty: true },
  { name: 'memory', value: 'SIZE', summary: 'memory limit, such as 128MiB (64MiB)' },
  { name: 'message', value: 'FILE', summary: 'file with a SenML message: call the module as a trigger does' },
  { name: 'watch', summary: 'run again when the file changes, until interrupted' },
  { name: 'bytes', value: 'base64', summary: 'bytes of the result as base64 instead of arrays' },
  { name: 'wait', summary: 'wait for the result' },
  { name: 'workers', value: 'IDS', summary: 'all, or comma-separated ids' },
  {
    name: 'registry-user',
    value: 'NAME',
    summary: 'user of the registry; its password is in SKEIN_REGISTRY_PASSWORD',
  },
  { name: 'rm', summary: 'delete the task afterwards' },
  { name: 'document', value: 'NAME', summary: 'named document of the state' },
  { name: 'timeout', value: 'DURATION', summary: 'timeout, such as 30s' },
  { name: 'delay', value: 'DURATION', summary: 'time until the next delivery, such as 30s' },
  { name: 'client', value: 'PUBLISHER', summary: 'publisher whose state it is; without it that of the task' },
  { name: 'run', value: 'RUN_ID', summary: 'id of a run' },
  { name: 'message-id', value: 'MESSAGE_ID', summary: 'id of a message, such as 4711/0' },
  { name: 'stream', value: 'STREAM', summary: 'stdout or stderr' },
  { name: 'label', value: 'KEY=VALUE', summary: 'only workers with this label' },
  { name: 'interval', value: 'DURATION', summary: 'polling interval, or width of a bucket' },
  { name: 'from', value: 'SECONDS', summary: 'start of the time range, in Unix seconds' },
  { name: 'to', value: 'SECONDS', summary: 'end of the time range (exclusive), in Unix seconds' },
  { name: 'publisher', value: 'CLIENT_ID', summary: 'only messages of this client' },
  { name: 'without', value: 'NAMES', summary: 'only messages without a publisher, subtopic or both, comma-separated' },
  { name: 'format', value: 'FORMAT', summary: 'messages (SenML), raw, or the name of a JSON format' },
  { name: 'aggregation', value: 'NAMES', summary: 'min, max, avg, sum, count, comma-separated; needs --from, --to' },
  { name: 'operation', value: 'NAME', summary: 'only this operation' },
  { name: 'dry-run', summary: 'show what would happen, and change nothing' },
  { name: 'skip-bad', summary: 'skip invalid lines' },
  { name: 'pairs', summary: 'connect only the client and channel of each CSV line' },
  { name: 'types', value: 'TYPES', summary: 'publish, subscribe or both, comma-separated' },
  { name: 'body', value: 'JSON', summary: 'body of the request; @file or - for standard input' },
] as const satisfies readonly Flag[]

export type FlagName = (typeof FLAGS)[number]['name']

/** Given flags; a switch is `'true'`. */
export type GivenFlags = {
  has(name: FlagName): boolean
  get(name: FlagName): string | undefined
  all(name: FlagName): readonly string[]
  names(): readonly FlagName[]
}

export function flagNamed(name: FlagName): Flag {
  const found: Flag | undefined = FLAGS.find((flag) => flag.name === name)
  if (found === undefined) throw new Error(`no flag --${name}`)
  return found
}

const BY_LONG = new Map<string, Flag>(
  FLAGS.flatMap((flag: Flag) => [flag.name, ...(flag.aliases ?? [])].map((name): [string, Flag] => [name, flag])),
)
const BY_SHORT = new Map<string, Flag>(FLAGS.flatMap((flag: Flag) => (flag.short ? [[flag.short, flag] as const] : [])))

/** A base64url secret can begin with a dash (one in 64 does). A flag does not match this form. */
const SECRET = /^-[A-Za-z0-9_-]{39,}$/

/**
 * Separates flags from arguments. Flags can be in any position before `--`. An argument can begin with a dash where it
 * cannot be a flag: a negative number, a PEM block, a token, `-` for standard input. Throws UsageError for an unknown
 * flag.
 */
export function parseFlags(argv: readonly string[]): { flags: GivenFlags; positionals: string[] } {
  const values = new Map<string, string[]>()
  const positionals: string[] = []
  const give = (flag: Flag, value: string) => {
    values.set(flag.name, flag.isList === true ? [...(values.get(flag.name) ?? []), value] : [value])
  }
  for (let at = 0; at < argv.length; at += 1) {
    const word = argv[at] ?? ''
    const next = () => {
      at += 1
      return argv[at]
    }
    if (word === '--') {
      positionals.push(...argv.slice(at + 1))
      break
    }
    if (!/^(--[a-z]|-[A-Za-z])/.test(word) || SECRET.test(word)) positionals.push(word)
    else if (word.startsWith('--')) readLong(word, next, give)
    else readShort(word, next, give)
  }
  return {
    positionals,
    flags: {
      has: (name) => values.has(name) && values.get(name)?.at(-1) !== 'false',
      get: (name) => values.get(name)?.at(-1),
      all: (name) => values.get(name) ?? [],
      names: () => [...values.keys()] as FlagName[],
    },
  }
}

type Give = (flag: Flag, value: string) => void
type Next = () => string | undefined

function readLong(word: string, next: Next, give: Give): void {
  const [name = '', ...rest] = word.slice(2).split('=')
  const inline = rest.length === 0 ? undefined : rest.join('=')
  const flag = BY_LONG.get(name)
  if (flag === undefined) throw new UsageError(`unknown flag --${name}${nearest(name)}; see skein --help`)
  if (flag.value === undefined) {
    if (inline !== undefined && inline !== 'true' && inline !== 'false')
      throw new UsageError(`--${name} takes no value`)
    give(flag, inline ?? 'true')
    return
  }
  give(flag, valueOf(`--${name}`, flag, inline ?? next()))
}

function readShort(word: string, next: Next, give: Give): void {
  for (let at = 1; at < word.length; at += 1) {
    const letter = word[at] ?? ''
    const flag = BY_SHORT.get(letter)
    if (flag === undefined) throw new UsageError(`unknown flag -${letter}; see skein --help`)
    if (flag.value === undefined) {
      give(flag, 'true')
      continue
    }
    const inline = word.slice(at + 1).replace(/^=/, '')
    give(flag, valueOf(`-${letter}`, flag, inline === '' ? next() : inline))
    return
  }
}

function valueOf(shown: string, flag: Flag, value: string | undefined): string {
  if (value === undefined) throw new UsageError(`${shown} requires a value: ${shown} ${flag.value ?? ''}`)
  if (value === '' && flag.mayBeEmpty !== true) throw new UsageError(`${shown} must not be empty`)
  return value
}

/** A known flag with the same beginning, as a hint. */
function nearest(name: string): string {
  const found = [...BY_LONG.keys()].find((known) => known.startsWith(name) || name.startsWith(known))
  return found === undefined ? '' : ` (--${found}?)`
}

/**
 * Every flag there is, as one table: parsing, help, completion and the manual page read it. A flag with a `group` means
 * something everywhere; the others belong to the commands that name them.
 */
import { UsageError } from './failures.ts'

export type Flag = {
  name: string
  short?: string
  /** How its value is called in help; absent: a switch without a value. */
  value?: string
  summary: string
  /** Under which heading help shows it; absent: a flag of single commands. */
  group?: 'Where' | 'Who' | 'Output' | 'Listings' | 'Other'
  /** Older names that mean the same. */
  aliases?: readonly string[]
  /** May be given several times. */
  isList?: boolean
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
  { name: 'auth-url', value: 'URL', summary: 'service of API keys', group: 'Where' },
  { name: 'host-url', short: 'H', value: 'URL', summary: 'base address, for everything else', group: 'Where' },
  { name: 'insecure', short: 'i', summary: 'accept any TLS certificate', group: 'Where' },

  { name: 'domain', value: 'ID', summary: 'domain to work in (SKEIN_DOMAIN)', group: 'Who' },
  { name: 'context', value: 'NAME', summary: 'installation to work with (SKEIN_CONTEXT)', group: 'Who' },
  { name: 'config', short: 'c', value: 'FILE', summary: 'configuration file (SKEIN_CONFIG)', group: 'Who' },

  {
    name: 'raw',
    short: 'r',
    summary: 'JSON, and bare ids and times, on a terminal too',
    group: 'Output',
    aliases: ['json'],
  },
  { name: 'curl', short: 'x', summary: 'print each request as a curl line on stderr', group: 'Output' },

  { name: 'limit', short: 'l', value: 'N', summary: 'how many to list (10)', group: 'Listings' },
  { name: 'offset', short: 'o', value: 'N', summary: 'how many to skip (0)', group: 'Listings' },
  { name: 'name', short: 'n', value: 'TEXT', summary: 'whose name holds this', group: 'Listings' },
  { name: 'identity', short: 'I', value: 'TEXT', summary: 'username or email of a user', group: 'Listings' },
  { name: 'metadata', short: 'm', value: 'JSON', summary: 'whose metadata holds this object', group: 'Listings' },
  { name: 'status', short: 'S', value: 'STATUS', summary: 'enabled, disabled or all', group: 'Listings' },
  { name: 'state', short: 'z', value: 'STATE', summary: 'of configurations, invitations, tasks', group: 'Listings' },
  { name: 'topic', short: 'T', value: 'TOPIC', summary: 'topic of a subscription', group: 'Listings' },
  { name: 'contact', short: 'C', value: 'CONTACT', summary: 'contact of a subscription', group: 'Listings' },
  { name: 'order', value: 'FIELD', summary: 'sort by name, created_at or updated_at', group: 'Listings' },
  { name: 'dir', value: 'DIR', summary: 'asc or desc', group: 'Listings' },
  {
    name: 'query',
    value: 'KEY=VALUE',
    summary: 'any other query parameter, any number of times',
    group: 'Listings',
    isList: true,
  },

  {
    name: 'content-type',
    short: 'y',
    value: 'TYPE',
    summary: 'of a sent message (application/senml+json)',
    group: 'Other',
  },
  { name: 'help', short: 'h', summary: 'what a command does, with an example', group: 'Other' },
  { name: 'version', short: 'V', summary: 'version of this program', group: 'Other' },

  { name: 'username', value: 'NAME', summary: 'username or email' },
  { name: 'password-stdin', summary: 'read the password from standard input' },
  { name: 'ttl', value: 'DURATION', summary: 'how long it is valid, as 8760h' },
  { name: 'description', value: 'TEXT', summary: 'what it is for' },
  { name: 'force', summary: 'also where it needs force (see the description)' },
  { name: 'follow', short: 'f', summary: 'go on until interrupted' },
  { name: 'inputs', value: 'INPUTS', summary: 'comma-separated numbers, or a JSON array' },
  { name: 'cli-args', value: 'ARGS', summary: 'comma-separated arguments of the module' },
  { name: 'function', value: 'NAME', summary: 'exported function to call' },
  { name: 'image', value: 'REFERENCE', summary: 'module in an OCI registry', aliases: ['image-url'] },
  { name: 'env', value: 'KEY=VALUE', summary: 'environment of the module, any number of times', isList: true },
  { name: 'wait', summary: 'wait for the result' },
  { name: 'workers', value: 'IDS', summary: 'all, or ids with commas between them' },
  {
    name: 'registry-user',
    value: 'NAME',
    summary: 'user of the registry; its password is in SKEIN_REGISTRY_PASSWORD',
  },
  { name: 'rm', summary: 'delete the task afterwards' },
  { name: 'timeout', value: 'DURATION', summary: 'at most this long, as 30s' },
  { name: 'run', value: 'RUN_ID', summary: 'of this run' },
  { name: 'stream', value: 'STREAM', summary: 'stdout or stderr' },
  { name: 'label', value: 'KEY=VALUE', summary: 'with this label' },
  { name: 'interval', value: 'DURATION', summary: 'time between two looks, or width of a bucket' },
  { name: 'from', value: 'SECONDS', summary: 'not before this Unix time' },
  { name: 'to', value: 'SECONDS', summary: 'before this Unix time' },
  { name: 'publisher', value: 'CLIENT_ID', summary: 'sent by this client' },
  { name: 'format', value: 'FORMAT', summary: 'messages (SenML), raw, or the name of a JSON format' },
  { name: 'aggregation', value: 'NAME', summary: 'min, max, avg, sum or count; needs --from, --to, --interval' },
  { name: 'operation', value: 'NAME', summary: 'only this operation' },
  { name: 'skip-bad', summary: 'leave out the lines that cannot be used' },
  { name: 'pairs', summary: 'connect the client and the channel of each line of CSV, and no others' },
  { name: 'types', value: 'TYPES', summary: 'publish, subscribe or both, comma-separated' },
  { name: 'body', value: 'JSON', summary: 'body of the request; @file or - for standard input' },
] as const satisfies readonly Flag[]

export type FlagName = (typeof FLAGS)[number]['name']

/** What was given; a switch is `'true'`. */
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

/** Every 64th secret in base64url begins with a dash; no flag with its value looks like this. */
const SECRET = /^-[A-Za-z0-9_-]{39,}$/

/**
 * Tells flags from arguments; flags may stand anywhere, `--` ends them. An argument may begin with a dash where it cannot
 * be a flag: a negative number, a PEM block, a token, `-` for standard input. Throws UsageError for a flag that nobody knows.
 */
export function splitFlags(argv: readonly string[]): { flags: GivenFlags; positionals: string[] } {
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
  if (flag === undefined) throw new UsageError(`there is no flag --${name}${nearest(name)}; see skein --help`)
  if (flag.value === undefined) {
    if (inline !== undefined && inline !== 'true' && inline !== 'false')
      throw new UsageError(`--${name} is a switch: it takes no value`)
    give(flag, inline ?? 'true')
    return
  }
  give(flag, valueOf(`--${name}`, flag, inline ?? next()))
}

function readShort(word: string, next: Next, give: Give): void {
  for (let at = 1; at < word.length; at += 1) {
    const letter = word[at] ?? ''
    const flag = BY_SHORT.get(letter)
    if (flag === undefined) throw new UsageError(`there is no flag -${letter}; see skein --help`)
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
  if (value === undefined) throw new UsageError(`${shown} needs a value: ${shown} ${flag.value ?? ''}`)
  return value
}

/** A known flag that begins alike, as a hint. */
function nearest(name: string): string {
  const found = [...BY_LONG.keys()].find((known) => known.startsWith(name) || name.startsWith(known))
  return found === undefined ? '' : ` (--${found}?)`
}

/**
 * A command is a row of data: the words that name it, its arguments, the request that it stands for. Help, completion,
 * the manual page and the test that tries every command are made from the rows.
 */
import type { FlagName } from './flags.ts'
import type { Incoming } from './http.ts'
import type { Login } from './login-store.ts'
import type { Output } from './output.ts'
import type { Settings } from './settings.ts'
import type { ServiceName } from './services.ts'
import type { View } from './table.ts'
import type { Given } from './values.ts'

/**
 * What scripts give after the arguments, and what daily use leaves out (contract section 13): `domain` is
 * `[<domain_id>] [<user_token>]` (both, one of them, or none), `user` is `[<user_token>]`, `device` is
 * `[<domain_id>] [<client_secret>]`.
 */
export type Tail = 'domain' | 'user' | 'device' | 'none'

export type Call = {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  service: ServiceName
  /**
   * `{name}` is an argument and `{domain}` the domain. `/{domain}` at the beginning falls away where no domain is known:
   * the server then finds the entity by itself (decision 31). `/{domain!}` must be known.
   */
  path: string | ((given: Given) => string)
  body?: (given: Given) => unknown
  /** Arguments and flags that become query parameters: by their own names. */
  query?: readonly string[]
  /** More of them, worked out. */
  parameters?: (given: Given) => Readonly<Record<string, string | undefined>>
  /** Default: a token must be there. */
  auth?: 'optional' | 'none' | ((given: Given) => string)
}

/** `data` shows the answer; `created` and `revoked` its id and time; `ok` says that it is done. */
export type Answer = 'data' | 'created' | 'ok' | 'revoked'

export type Command = {
  words: string
  /** `<needed>`, `[<json>]` for an argument that is told by its being JSON; `[<last>]` only where the tail is `none`. */
  args: string
  /** The same where the entity stands before the verb, when the order differs: `clients <client_id> roles update …`. */
  subjectArgs?: string
  tail: Tail
  summary: string
  /** Arguments as one would type them. */
  example: string
  /** Flags of its own. */
  flags?: readonly FlagName[]
  /** Columns of its table; the group's where absent. */
  columns?: readonly string[]
  call?: Call
  answer?: Answer
  /** For what is more than one request. */
  run?: (cli: Cli, given: Given) => Promise<void>
  /** Kept for scripts of older generations: not offered by completion. */
  isOlder?: boolean
}

export type Group = {
  name: string
  summary: string
  /** One sentence or more for `--help` of the group. */
  description?: string
  columns?: readonly string[]
  /** Words for the numbers of a column. */
  labels?: View['labels']
  /** False for what concerns this machine alone. */
  needsServer?: false
  commands: readonly Command[]
}

/** Whose token requests carry: session.ts. */
export type Session = {
  login(): Login | undefined
  /** Whether a token would be found without one on the command line. */
  hasToken(): boolean
  authorization(request: ApiRequest, url: string): Promise<string | undefined>
  /** After a 401: whether a newer token is there now, so that a second try makes sense. */
  renew(request: ApiRequest): Promise<boolean>
  hintWhenRefused(request: ApiRequest): string
  /** Texts that `--curl` must not show, and the shell expression that stands for each. */
  hidden(): ReadonlyMap<string, string>
  /** Keeps what a login brought. */
  keep(login: Omit<Login, 'origins'>): Promise<void>
  forget(): Promise<void>
}

/** One request, whole. */
export type ApiRequest = {
  method: Call['method']
  service: ServiceName
  path: string
  query?: Readonly<Record<string, string | undefined>>
  json?: unknown
  /** A body that is sent as it is. */
  text?: string | Buffer
  contentType?: string
  /** A file to send: as the field `file` of a form, or, with a content type, as the whole body. */
  file?: string
  /**
   * `needed`: a token of the command line, the environment, the configuration file or the saved login; `optional`: the
   * same, or none; `refresh`: the refresh token of the saved login. Anything else is the value of the header.
   */
  authorization?: 'needed' | 'optional' | 'none' | 'refresh' | { header: string }
  /** A token of the command line. */
  token?: string | undefined
  headers?: Readonly<Record<string, string>>
  /** How long the server may be silent. */
  deadlineMs?: number
  onSent?: (bytes: number) => void
}

export type Reply = Incoming & { value: unknown }

/** What commands work with. */
export type Cli = {
  readonly settings: Settings
  readonly output: Output
  readonly session: Session
  /** Aborted by Ctrl-C. */
  readonly signal: AbortSignal
  /** Sends what a row stands for. */
  call(call: Call, given: Given): Promise<Reply>
  /** Throws RefusedError for an answer of 400 and above. */
  request(request: ApiRequest): Promise<Reply>
  /** The address of a request and its headers, for a stream that reads the answer itself. */
  prepare(request: ApiRequest): Promise<{ url: string; headers: Record<string, string> }>
  /** Shows an answer in the form that a row names. */
  show(answer: Answer, reply: Reply, view?: View): void
}

/** Filters that every listing understands. */
export const PAGE: readonly FlagName[] = ['limit', 'offset', 'order', 'dir']
export const LISTING: readonly FlagName[] = [...PAGE, 'name', 'metadata', 'status']

/** A group by its name, loaded when it is needed. */
export type GroupEntry = {
  name: string
  aliases?: readonly string[]
  summary: string
  section: 'Start' | 'Platform' | 'Tasks' | 'This program'
  load: () => Promise<Group>
}

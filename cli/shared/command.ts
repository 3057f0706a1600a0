/**
 * A command is a row of data: its words, its arguments and its request. Help, completion, the manual page and the test of
 * every command are generated from the rows.
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
 * Optional trailing arguments, used by scripts (contract section 13): `domain` is `[<domain_id>] [<user_token>]` (both,
 * one of them, or none), `user` is `[<user_token>]`, `device` is `[<domain_id>] [<client_secret>]`.
 */
export type Tail = 'domain' | 'user' | 'device' | 'none'

export type Call = {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  service: ServiceName
  /**
   * `{name}` is an argument and `{domain}` the domain. A leading `/{domain}` is omitted when no domain is set: the server
   * then finds the entity by its id (decision 31). `/{domain!}` requires a domain.
   */
  path: string | ((given: Given) => string)
  body?: (given: Given) => unknown
  /** Arguments and flags that become query parameters of the same name. */
  query?: readonly string[]
  /** Computed query parameters. */
  parameters?: (given: Given) => Readonly<Record<string, string | undefined>>
  /** Default: a token is required. */
  auth?: 'optional' | 'none' | ((given: Given) => string)
}

/** `data` shows the answer; `created` and `revoked` show its id and time; `ok` confirms success. */
export type ResponseStyle = 'data' | 'created' | 'ok' | 'revoked'

export type Command = {
  words: string
  /**
   * `<required>`, `[<json>]` for an optional argument that is recognized by being JSON; `[<last>]` only where the tail is
   * `none`.
   */
  args: string
  /**
   * The arguments in the form with the entity before the verb, when their order differs: `clients <client_id> roles
   * update …`.
   */
  subjectArgs?: string
  tail: Tail
  summary: string
  /** Example arguments. */
  example: string
  /** Flags of its own. */
  flags?: readonly FlagName[]
  /** Columns of its table; defaults to those of the group. */
  columns?: readonly string[]
  call?: Call
  answer?: ResponseStyle
  /** Something about the answer that the user should know, for stderr. */
  hintOf?: (answer: unknown) => string | undefined
  /** Replaces `call` for commands with more than one request. */
  run?: (cli: Cli, given: Given) => Promise<void>
  /** `run` needs the id of the domain, as every `call` does. */
  usesDomainId?: true
  /** An older form that scripts use; completion does not offer it. */
  isOlder?: boolean
}

export type Group = {
  name: string
  summary: string
  /** One sentence or more for `--help` of the group. */
  description?: string
  columns?: readonly string[]
  /** Labels for the numbers of a column. */
  labels?: View['labels']
  /** False for groups that only concern this machine. */
  needsServer?: false
  commands: readonly Command[]
}

/** The token of requests: session.ts. */
export type Session = {
  login(): Login | undefined
  /** Whether a token is available without one on the command line. */
  hasToken(): boolean
  authorization(request: ApiRequest, url: string): Promise<string | undefined>
  /** Called after a 401. Resolves to true if a newer token is available, so that a retry makes sense. */
  renew(request: ApiRequest): Promise<boolean>
  hintWhenRefused(request: ApiRequest): string
  /** Secrets that `--curl` must not show, with the shell expression for each. */
  hidden(): ReadonlyMap<string, string>
  /** Saves the tokens of a login. */
  saveLogin(login: Omit<Login, 'origins'>): Promise<void>
  removeLogin(): Promise<void>
}

/** A complete request. */
export type ApiRequest = {
  method: Call['method']
  service: ServiceName
  path: string
  query?: Readonly<Record<string, string | undefined>>
  json?: unknown
  /** A body that is sent unchanged. */
  text?: string | Buffer
  contentType?: string
  /** A file to upload: the field `file` of a form or, with a content type, the whole body. */
  file?: string
  /**
   * `needed`: a token of the command line, the environment, the configuration file or the saved login; `optional`: the
   * same, or none; `refresh`: the refresh token of the saved login; `header`: the value of the header.
   */
  authorization?: 'needed' | 'optional' | 'none' | 'refresh' | { header: string }
  /** A token of the command line. */
  token?: string | undefined
  headers?: Readonly<Record<string, string>>
  /** Statuses of 400 and above whose answer is wanted and not a failure. */
  accepts?: readonly number[]
  /** The server must send something within this time. */
  deadlineMs?: number
  onSent?: (bytes: number) => void
}

export type Reply = Incoming & { value: unknown }

/** The interface of commands to the program. */
export type Cli = {
  readonly settings: Settings
  readonly output: Output
  readonly session: Session
  /** The signal is aborted by Ctrl-C. */
  readonly signal: AbortSignal
  /** Sends the request of a row. */
  call(call: Call, given: Given): Promise<Reply>
  /** Throws RefusedError for an answer of 400 and above. */
  request(request: ApiRequest): Promise<Reply>
  /** The address and headers of a request, for a stream that reads the answer itself. */
  prepare(request: ApiRequest): Promise<{ url: string; headers: Record<string, string> }>
  /** Shows an answer in the form of its row. */
  show(answer: ResponseStyle, reply: Reply, view?: View): void
}

/** Filters of every listing. */
export const PAGE: readonly FlagName[] = ['limit', 'offset', 'order', 'dir']
export const LISTING: readonly FlagName[] = [...PAGE, 'name', 'metadata', 'status']

/** A group by its name, loaded on demand. */
export type GroupEntry = {
  name: string
  aliases?: readonly string[]
  summary: string
  section: 'Start' | 'Platform' | 'Tasks' | 'This program'
  /** Commands of older command lines begin with its name (`older-words.ts`). */
  hasOlderWords?: true
  load: () => Promise<Group>
}

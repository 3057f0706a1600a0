/**
 * One invocation: where to talk to, with which token, and how the answer is shown. Commands get this and nothing else; the
 * public HTTP API is all that it uses.
 */
import { randomUUID } from 'node:crypto'
import { statSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { Answer, ApiRequest, Call, Cli, Reply, Session } from './command.ts'
import { configFolder, readConfigFile } from './config-file.ts'
import { curlLine } from './curl.ts'
import { CommandError, RefusedError, UsageError } from './failures.ts'
import type { FlagName, GivenFlags } from './flags.ts'
import { exchange } from './http.ts'
import type { FileBody, Incoming } from './http.ts'
import { readContexts } from './login-store.ts'
import { createOutput } from './output.ts'
import type { Output, Stream } from './output.ts'
import { createSession } from './session.ts'
import { environmentAddresses, flagAddresses, resolveAddress } from './settings.ts'
import type { Environment, Settings } from './settings.ts'
import type { View } from './table.ts'
import { arg, isRecord, plainText } from './values.ts'
import type { Given } from './values.ts'

/** How long a server may be silent; a bulk of 10,000 items takes seconds. */
const ANSWER_DEADLINE_MS = 60_000
const CONTENT_TYPE = 'application/senml+json'

export type Invocation = {
  flags: GivenFlags
  environment: Environment
  streams: { stdout: Stream; stderr: Stream }
  signal: AbortSignal
  version: string
}

export function readSettings({ flags, environment, version }: Invocation): Settings {
  const file = readConfigFile(flags.get('config') ?? filled(environment['SKEIN_CONFIG']), environment)
  const contextsPath = join(configFolder(environment), 'contexts.json')
  const all = readContexts(contextsPath)
  const contextName = flags.get('context') ?? filled(environment['SKEIN_CONTEXT']) ?? all.current
  const context = all.contexts[contextName]
  const given = { ...environmentAddresses(environment), ...flagAddresses(flags) }
  const sources = [
    { from: 'flag', addresses: flagAddresses(flags) },
    { from: 'environment', addresses: environmentAddresses(environment) },
    { from: `context ${contextName}`, addresses: context?.addresses ?? {} },
    { from: file.path, addresses: file.addresses },
  ]
  const tokenOfEnvironment = filled(environment['SKEIN_TOKEN'])
  const tokenOfFile = file.values['user_token']
  return {
    address: (service) => resolveAddress(service, sources),
    givenAddresses: given,
    isInsecure: flags.has('insecure') || file.values['tls_verification'] === 'false',
    isCurl: flags.has('curl'),
    isRaw: flags.names().includes('raw') ? flags.has('raw') : file.values['raw_output'] === 'true',
    contentType: flags.get('content-type') ?? file.values['msg_content_type'] ?? CONTENT_TYPE,
    filter: (name) => filled(flags.get(name) ?? file.values[name === 'identity' ? 'email' : name]),
    environment,
    contextName,
    contextsPath,
    configPath: file.path,
    domain: flags.get('domain') ?? filled(environment['SKEIN_DOMAIN']) ?? context?.domain,
    token:
      tokenOfEnvironment !== undefined
        ? { value: tokenOfEnvironment, from: 'SKEIN_TOKEN' }
        : tokenOfFile !== undefined
          ? { value: tokenOfFile, from: file.path }
          : undefined,
    version,
  }
}

const filled = (value: string | undefined): string | undefined => (value === '' ? undefined : value)

export function createCli(invocation: Invocation): Cli {
  const { environment, streams, signal } = invocation
  const settings = readSettings(invocation)
  const output = createOutput(streams, settings.isRaw, environment)
  const session = createSession(settings, (request) =>
    send(request, typeof request.authorization === 'object' ? request.authorization.header : undefined),
  )

  async function prepare(request: ApiRequest): Promise<{ url: string; headers: Record<string, string> }> {
    const url = urlOf(settings.address(request.service).url, request)
    const authorization = await session.authorization(request, url)
    return { url, headers: headersOf(request, authorization) }
  }

  async function send(request: ApiRequest, authorization: string | undefined): Promise<Incoming> {
    const url = urlOf(settings.address(request.service).url, request)
    const headers = headersOf(request, authorization)
    const body = bodyOf(request, headers)
    if (settings.isCurl) {
      const shown = Buffer.isBuffer(body) ? '@-' : body
      printCurl(request, url, headers, typeof shown === 'string' ? shown : undefined)
    }
    return await exchange({
      method: request.method,
      url,
      headers,
      body,
      deadlineMs: request.deadlineMs ?? ANSWER_DEADLINE_MS,
      isInsecure: settings.isInsecure,
      signal,
      onSent: request.onSent,
    })
  }

  function printCurl(
    request: ApiRequest,
    url: string,
    headers: Record<string, string>,
    body: string | undefined,
  ): void {
    const { 'User-Agent': _agent, ...shown } = headers
    if (shown['Registry-Authorization'] !== undefined) shown['Registry-Authorization'] = 'Basic …'
    output.note(
      curlLine({
        method: request.method,
        url,
        headers: shown,
        body,
        file: request.file,
        isForm: request.contentType === undefined,
        isInsecure: settings.isInsecure,
        hidden: session.hidden(),
      }),
    )
  }

  return {
    settings,
    output,
    signal,
    session,
    prepare,
    async call(call, given) {
      return await this.request(requestOf(call, given, settings))
    },
    async request(request) {
      const url = urlOf(settings.address(request.service).url, request)
      let incoming = await send(request, await session.authorization(request, url))
      if (incoming.status === 401 && (await session.renew(request)))
        incoming = await send(request, await session.authorization(request, url))
      if (incoming.status >= 400) throw refusalOf(incoming, request, session)
      return { ...incoming, value: parseBody(incoming) }
    },
    show(answer, reply, view) {
      showAnswer(output, answer, reply, view)
    },
  }
}

function urlOf(base: string, { path, query = {} }: ApiRequest): string {
  const url = new URL(base + path)
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.append(name, value)
  return url.href
}

function headersOf(request: ApiRequest, authorization: string | undefined): Record<string, string> {
  const contentType = request.contentType ?? (request.json === undefined ? undefined : 'application/json')
  return {
    Accept: 'application/json',
    'User-Agent': 'skein',
    ...(contentType === undefined ? {} : { 'Content-Type': contentType }),
    ...(authorization === undefined ? {} : { Authorization: authorization }),
    ...request.headers,
  }
}

/** Adds the content type of a form to `headers`, since it holds the boundary. */
function bodyOf(request: ApiRequest, headers: Record<string, string>): string | Buffer | FileBody | undefined {
  if (request.text !== undefined) return request.text
  if (request.json !== undefined) return JSON.stringify(request.json)
  if (request.file === undefined) return undefined
  const sizeBytes = sizeOf(request.file)
  if (request.contentType !== undefined)
    return { path: request.file, sizeBytes, before: Buffer.alloc(0), after: Buffer.alloc(0) }
  const boundary = `skein-${randomUUID()}`
  headers['Content-Type'] = `multipart/form-data; boundary=${boundary}`
  const name = basename(request.file).replaceAll(/["\r\n]/g, '_')
  return {
    path: request.file,
    sizeBytes,
    before: Buffer.from(
      `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: application/wasm\r\n\r\n`,
    ),
    after: Buffer.from(`\r\n--${boundary}--\r\n`),
  }
}

/** Throws CommandError unless it is a file that can be read. */
export function sizeOf(path: string): number {
  try {
    const stat = statSync(path)
    if (stat.isFile()) return stat.size
  } catch (error) {
    throw new CommandError(`cannot read ${path}: ${(error as Error).message}`)
  }
  throw new CommandError(`${path} is no file`)
}

function parseBody({ text, headers }: Incoming): unknown {
  if (text === '') return undefined
  if (!String(headers['content-type'] ?? '').includes('json')) return text
  try {
    return JSON.parse(text) as unknown
  } catch {
    throw new CommandError('the answer is not JSON', 'is this address Skein? see skein doctor')
  }
}

/** The request of a row. Throws UsageError where the domain is needed and nobody said which. */
export function requestOf(call: Call, given: Given, settings: Settings): ApiRequest {
  const template = typeof call.path === 'function' ? call.path(given) : call.path
  const needsDomain = template.includes('{domain!}')
  if (needsDomain && given.domain === undefined)
    throw new UsageError(
      'this needs a domain: give it before the token, with --domain, or keep one: skein context domain ID',
    )
  const path = template
    .replace(/^\/\{domain\}/, given.domain === undefined ? '' : `/${encodeURIComponent(given.domain)}`)
    .replaceAll(/\{([^}]+)\}/g, (_match, name: string) =>
      encodeURIComponent(name.startsWith('domain!') ? (given.domain ?? '') : arg(given, name)),
    )
  const { auth = 'needed' } = call
  return {
    method: call.method,
    service: call.service,
    path,
    query: { ...queryOf(call, given, settings), ...call.parameters?.(given) },
    ...(call.body === undefined ? {} : { json: call.body(given) }),
    authorization: typeof auth === 'function' ? { header: auth(given) } : auth,
    token: given.credential,
  }
}

const COUNTS: ReadonlySet<string> = new Set(['limit', 'offset'])

function queryOf(call: Call, given: Given, settings: Settings): Record<string, string | undefined> {
  const found: Record<string, string | undefined> = {}
  for (const name of call.query ?? []) {
    const value = given.args[name] ?? settings.filter(name as FlagName)
    if (COUNTS.has(name) && value !== undefined && !/^-?\d+$/.test(value))
      throw new UsageError(`--${name} must be a whole number`)
    found[name.replaceAll('-', '_')] = value ?? (name === 'limit' ? '10' : name === 'offset' ? '0' : undefined)
  }
  for (const pair of given.flags.all('query')) {
    const split = pair.indexOf('=')
    if (split < 1) throw new UsageError('--query must be KEY=VALUE')
    found[pair.slice(0, split)] = pair.slice(split + 1)
  }
  return found
}

/** The server's own words, and what to do next. */
function refusalOf({ status, text, headers }: Incoming, request: ApiRequest, session: Session): RefusedError {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  const record = isRecord(body) ? body : {}
  const details = Array.isArray(record['details'])
    ? record['details']
        .filter(isRecord)
        .map((detail) => ({ path: plainText(detail['path']), message: plainText(detail['message']) }))
    : []
  const message = plainText(record['message'] ?? record['error'], `the server answered ${status}`)
  const more = details
    .filter((detail) => !message.includes(detail.message))
    .map((detail) => `${detail.path} ${detail.message}`)
  const requestId = status >= 500 ? headers['x-request-id'] : undefined
  return new RefusedError(
    status,
    [message, ...more].join('; ') + (requestId === undefined ? '' : ` (request ${String(requestId)})`),
    details,
    hintFor(status, headers, request, session),
  )
}

function hintFor(
  status: number,
  headers: Incoming['headers'],
  request: ApiRequest,
  session: Session,
): string | undefined {
  if (status === 401) return session.hintWhenRefused(request)
  if (status === 403) return 'ask an administrator of the domain for a role that may do this, or name another --domain'
  if (status === 429 || status === 503) {
    const after = headers['retry-after']
    return after === undefined ? 'try again in a moment' : `try again in ${after} s`
  }
  if (status === 502 || status === 504) return 'it may have done what was asked: look before you repeat it'
  if (status === 500) return 'the log of the server has more under this request'
  return undefined
}

function showAnswer(output: Output, answer: Answer, reply: Reply, view?: View): void {
  const value = isRecord(reply.value) ? reply.value : {}
  if (answer === 'created') {
    const location = reply.headers.location?.split('/').at(-1) ?? ''
    output.created(plainText(value['id'], decodeURIComponent(location)))
  } else if (answer === 'revoked') output.revoked(plainText(value['revocation_time']))
  else if (answer === 'ok' || reply.value === undefined) output.ok()
  else if (typeof reply.value === 'string') output.line(reply.value.trimEnd())
  else output.data(reply.value, view)
}

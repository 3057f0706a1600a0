/** Builds the HTTP request from the row of a command and its arguments. */
import { randomUUID } from 'node:crypto'
import { statSync } from 'node:fs'
import { basename } from 'node:path'
import type { ApiRequest, Call } from './command.ts'
import { CommandError, UsageError } from './failures.ts'
import type { FlagName } from './flags.ts'
import type { FileBody } from './http.ts'
import type { Settings } from './settings.ts'
import { arg } from './values.ts'
import type { Given } from './values.ts'

/** The request of a row. Throws UsageError if the domain is required and not set. */
export function requestOf(call: Call, given: Given, settings: Settings): ApiRequest {
  const template = typeof call.path === 'function' ? call.path(given) : call.path
  const needsDomain = template.includes('{domain!}')
  if (needsDomain && given.domain === undefined)
    throw new UsageError('a domain is required: give it before the token, use --domain, or skein context domain ID')
  const path = template
    .replace(/^\/\{domain\}/, given.domain === undefined ? '' : `/${encodeURIComponent(given.domain)}`)
    .replaceAll(/\{([^{}]+)\}/g, (_match, name: string) =>
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

/**
 * Refuses an empty query parameter of a request that changes something, as the server does (contract, decision 84): also of `--query
 * KEY=`. Throws UsageError.
 */
export function refuseEmptyQuery({ method, query = {} }: ApiRequest): void {
  if (method === 'GET') return
  const name = Object.keys(query).find((key) => query[key] === '')
  if (name !== undefined) throw new UsageError(`${name} must not be empty`)
}

export function urlOf(base: string, { path, query = {} }: ApiRequest): string {
  const url = new URL(base + path)
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.append(name, value)
  return url.href
}

export function headersOf(request: ApiRequest, authorization: string | undefined): Record<string, string> {
  const contentType = request.contentType ?? (request.json === undefined ? undefined : 'application/json')
  return {
    Accept: 'application/json',
    'User-Agent': 'skein',
    ...(contentType === undefined ? {} : { 'Content-Type': contentType }),
    ...(authorization === undefined ? {} : { Authorization: authorization }),
    ...request.headers,
  }
}

/** Adds the content type of a form to `headers`, because it contains the boundary. */
export function bodyOf(request: ApiRequest, headers: Record<string, string>): string | Buffer | FileBody | undefined {
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

/** Throws CommandError unless it is a readable file. */
export function sizeOf(path: string): number {
  try {
    const stat = statSync(path)
    if (stat.isFile()) return stat.size
  } catch (error) {
    throw new CommandError(`cannot read ${path}: ${(error as Error).message}`)
  }
  throw new CommandError(`${path} is not a file`)
}

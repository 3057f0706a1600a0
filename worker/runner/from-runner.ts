/**
 * Decodes messages of a runner. A guest may control the runner, so the messages are untrusted: each is rebuilt from its
 * required fields with checked types and sizes. The supervisor checks whether a message is valid for the thread and run
 * that it names.
 */
import { parseBase64 } from '#core/bytes/index.ts'
import type { TextOrBytes } from '#core/bytes/index.ts'
import {
  MAX_HTTP_BODY_BYTES,
  MAX_HTTP_HEADERS,
  MAX_HTTP_HEADER_BYTES,
  MAX_HTTP_URL_CHARS,
  MAX_STATE_BYTES_OF_RUN,
  MAX_STATE_KEYS_OF_RUN,
  MAX_STATE_KEYS_READ,
  MAX_STATE_VALUE_BYTES,
  STATE_BUCKETS,
  refusalOfKey,
} from '#guests/wasm/index.ts'
import type { GuestCall, HttpHeaders, Json, StateEntry } from '#guests/wasm/index.ts'
import type { CallOutcome, FailureReason, RunResults } from '#guests/calls/index.ts'
import { checkJsonSize } from './json-size.ts'
import { THREAD_QUEUE_RUNS } from './messages.ts'
import { withOutputInResults } from './output-once.ts'
import type { FromRunner } from './messages.ts'

/** Longest error text; a thread truncates its own far below. */
const MAX_ERROR_CHARACTERS = 16 * 1024
/** Nesting depth of a result; the types of components allow less. */
const MAX_RESULT_DEPTH = 256
/** Messages per frame; a runner closes a frame at 1 MiB. */
const MAX_MESSAGES = 100_000
/** Frames of a failed guest, and the longest; a thread truncates its own. */
const MAX_FRAMES = 20
const MAX_FRAME_CHARACTERS = 300
/** Of any text that a guest gives as a method. */
const MAX_HTTP_METHOD_CHARACTERS = 64

const REASONS: ReadonlySet<unknown> = new Set<FailureReason>([
  'timeout',
  'oom',
  'trap',
  'guest_error',
  'module_invalid',
  'no_such_function',
])

type Fields = Record<string, unknown>

/** Throws an Error with the reason; the runner must not be trusted any more. */
export function parseFromRunner(payload: Buffer): FromRunner[] {
  checkJsonSize(payload)
  const batch: unknown = JSON.parse(payload.toString())
  if (!Array.isArray(batch) || batch.length > MAX_MESSAGES) throw new Error('a frame is not a list of messages')
  return batch.map(parseMessage)
}

function parseMessage(value: unknown): FromRunner {
  const message = fields(value, 'a message')
  switch (message['type']) {
    case 'ready':
      return { type: 'ready' }
    case 'thread_ready':
      return { type: 'thread_ready', thread: count(message, 'thread') }
    case 'thread_ended':
      return { type: 'thread_ended', thread: count(message, 'thread') }
    case 'thread_lost':
      return {
        type: 'thread_lost',
        thread: count(message, 'thread'),
        error: text(message, 'error', MAX_ERROR_CHARACTERS),
      }
    case 'module_ready':
      return parseModuleReady(message)
    case 'ended':
      return {
        type: 'ended',
        ...runOf(message),
        outcome: parseEnd(message),
        durationMs: duration(message, 'durationMs'),
        cpuMs: duration(message, 'cpuMs'),
        memoryBytes: count(message, 'memoryBytes'),
        isStreamed: flag(message, 'isStreamed'),
        ...(message['stateEntries'] === undefined ? {} : { stateEntries: parseStateEntries(message['stateEntries']) }),
      }
    case 'guest_call':
      return {
        type: 'guest_call',
        ...runOf(message),
        callId: count(message, 'callId'),
        call: parseCall(fields(message['call'], 'a call')),
      }
    case 'output':
      return {
        type: 'output',
        ...runOf(message),
        output: oneOf(message, 'output', ['stdout', 'stderr'] as const),
        data: text(message, 'data'),
      }
    case 'recalled':
      return { type: 'recalled', thread: count(message, 'thread'), sequences: counts(message, 'sequences') }
    case 'resident':
      return { type: 'resident', residentBytes: count(message, 'residentBytes') }
    default:
      throw new Error('a message has an unknown type')
  }
}

function parseModuleReady(message: Fields): FromRunner {
  const moduleKey = text(message, 'moduleKey')
  if (message['refused'] === undefined) return { type: 'module_ready', moduleKey }
  return {
    type: 'module_ready',
    moduleKey,
    refused: text(message, 'refused').slice(0, MAX_ERROR_CHARACTERS),
    reason: oneOf(message, 'reason', ['module_invalid', 'oom'] as const),
  }
}

function parseEnd(message: Fields): CallOutcome {
  const outcome = parseOutcome(fields(message['outcome'], 'an outcome'))
  const isOnce = message['isOutputInResults'] !== undefined && flag(message, 'isOutputInResults')
  return isOnce ? withOutputInResults(outcome) : outcome
}

function parseOutcome(outcome: Fields): CallOutcome {
  const written = {
    ...(outcome['stdout'] === undefined ? {} : { stdout: output(outcome, 'stdout') }),
    ...(outcome['stderr'] === undefined ? {} : { stderr: output(outcome, 'stderr') }),
    ...(outcome['isOutputTruncated'] === undefined ? {} : { isOutputTruncated: flag(outcome, 'isOutputTruncated') }),
  }
  const results = outcome['results'] as RunResults | undefined
  if (results !== undefined) requireShallow(results as Json)
  if (outcome['state'] === 'completed') {
    if (results === undefined) throw new Error('a completed outcome has no results')
    return { ...written, state: 'completed', results }
  }
  const { reason } = outcome
  if (outcome['state'] !== 'failed' || !REASONS.has(reason))
    throw new Error('an outcome has an unknown state or reason')
  return {
    ...written,
    state: 'failed',
    reason: reason as FailureReason,
    error: text(outcome, 'error', MAX_ERROR_CHARACTERS),
    ...(outcome['frames'] === undefined ? {} : { frames: texts(outcome, 'frames') }),
    ...(results === undefined ? {} : { results }),
  }
}

function parseCall(call: Fields): GuestCall {
  if (call['kind'] === 'publish') {
    return { kind: 'publish', topic: text(call, 'topic'), payload: text(call, 'payload') }
  }
  if (call['kind'] === 'state_open') return { kind: 'state_open', bucket: oneOf(call, 'bucket', STATE_BUCKETS) }
  if (call['kind'] === 'state_get') {
    const { keys } = call
    if (!Array.isArray(keys) || keys.length > MAX_STATE_KEYS_READ) throw new Error('keys is not a short list')
    const bucket = oneOf(call, 'bucket', STATE_BUCKETS)
    return { kind: 'state_get', bucket, keys: keys.map((key: unknown) => stateKey({ key }, 'key')) }
  }
  if (call['kind'] === 'state_keys') {
    const after = call['after'] === '' ? '' : stateKey(call, 'after')
    return { kind: 'state_keys', bucket: oneOf(call, 'bucket', STATE_BUCKETS), after }
  }
  if (call['kind'] === 'http') {
    return {
      kind: 'http',
      method: text(call, 'method', MAX_HTTP_METHOD_CHARACTERS),
      url: text(call, 'url', MAX_HTTP_URL_CHARS),
      headers: parseHeaders(call['headers']),
      body: httpBody(call),
      timeoutMs: optionalNumber(call, 'timeoutMs'),
    }
  }
  if (call['kind'] !== 'read') throw new Error('a call has an unknown kind')
  return {
    kind: 'read',
    topic: text(call, 'topic'),
    name: text(call, 'name'),
    from: optionalNumber(call, 'from'),
    to: optionalNumber(call, 'to'),
    limit: count(call, 'limit'),
  }
}

/** A thread keeps these limits; whether the headers may be sent is checked with the grant. */
function parseHeaders(value: unknown): HttpHeaders {
  if (!Array.isArray(value) || value.length > MAX_HTTP_HEADERS) throw new Error('headers is not a short list')
  return value.map((one: unknown) => {
    if (!Array.isArray(one) || one.length !== 2) throw new Error('a header is not a pair')
    const [name, content] = one as [unknown, unknown]
    const pair = { name, content }
    return [text(pair, 'name', MAX_HTTP_HEADER_BYTES), text(pair, 'content', MAX_HTTP_HEADER_BYTES)]
  })
}

function httpBody(call: Fields): string {
  const body = parseBase64(text(call, 'body'))
  if (body === undefined) throw new Error('the body of a request is not base64')
  if (body.length > MAX_HTTP_BODY_BYTES) throw new Error('the body of a request exceeds its limit')
  return text(call, 'body')
}

function stateKey(message: Fields, name: string): string {
  const key = text(message, name)
  const refusal = refusalOfKey(key)
  if (refusal !== undefined) throw new Error(refusal)
  return key
}

/** A thread keeps these limits; a runner that exceeds them is compromised. */
function parseStateEntries(value: unknown): StateEntry[] {
  if (!Array.isArray(value) || value.length > MAX_STATE_KEYS_OF_RUN) throw new Error('stateEntries is not a short list')
  let bytes = 0
  const seen = new Set<string>()
  return value.map((one: unknown): StateEntry => {
    const entry = fields(one, 'an entry of the state')
    const bucket = oneOf(entry, 'bucket', STATE_BUCKETS)
    const key = stateKey(entry, 'key')
    if (seen.has(`${bucket} ${key}`)) throw new Error('a key of the state is repeated')
    seen.add(`${bucket} ${key}`)
    const version = entry['version'] === undefined ? {} : { version: count(entry, 'version') }
    if (entry['value'] === undefined) return { bucket, key, ...version }
    const written = entry['value'] === null ? undefined : parseBase64(text(entry, 'value'))
    if (written === undefined && entry['value'] !== null) throw new Error('a value of the state is not base64')
    bytes += Buffer.byteLength(key) + (written?.length ?? 0)
    if ((written?.length ?? 0) > MAX_STATE_VALUE_BYTES || bytes > MAX_STATE_BYTES_OF_RUN)
      throw new Error('the state exceeds its limits')
    return { bucket, key, ...version, value: entry['value'] === null ? null : text(entry, 'value') }
  })
}

function runOf(message: Fields): { thread: number; sequence: number } {
  return { thread: count(message, 'thread'), sequence: count(message, 'sequence') }
}

/** Iterative, because recursion would overflow on a deep value. */
function requireShallow(value: Json): void {
  let level: Json[] = [value]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_RESULT_DEPTH) throw new Error(`a result is nested deeper than ${MAX_RESULT_DEPTH}`)
    const next: Json[] = []
    for (const item of level) {
      if (typeof item !== 'object' || item === null) continue
      for (const inner of Array.isArray(item) ? item : Object.values(item)) {
        if (typeof inner === 'object' && inner !== null) next.push(inner)
      }
    }
    level = next
  }
}

function fields(value: unknown, what: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${what} is not an object`)
  return value as Fields
}

function text(message: Fields, name: string, maxCharacters = Infinity): string {
  const value = message[name]
  if (typeof value !== 'string') throw new Error(`${name} is not a string`)
  if (value.length > maxCharacters) throw new Error(`${name} is longer than ${maxCharacters} characters`)
  return value
}

/** Text, or bytes in base64. */
function output(message: Fields, name: string): TextOrBytes {
  if (typeof message[name] === 'string') return message[name]
  const base64 = text(fields(message[name], name), 'base64')
  if (parseBase64(base64) === undefined) throw new Error(`${name} is not base64`)
  return { base64 }
}

function texts(message: Fields, name: string): string[] {
  const values = message[name]
  if (!Array.isArray(values) || values.length > MAX_FRAMES) throw new Error(`${name} is not a short list`)
  return values.map((value: unknown) => text({ [name]: value }, name, MAX_FRAME_CHARACTERS))
}

function count(message: Fields, name: string): number {
  const value = message[name]
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw new Error(`${name} is not a whole number`)
  return value as number
}

function counts(message: Fields, name: string): number[] {
  const values = message[name]
  if (!Array.isArray(values) || values.length > THREAD_QUEUE_RUNS) throw new Error(`${name} is not a list of runs`)
  return values.map((value: unknown) => count({ [name]: value }, name))
}

function duration(message: Fields, name: string): number {
  const value = message[name]
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0) throw new Error(`${name} is not a duration`)
  return value
}

function optionalNumber(message: Fields, name: string): number | null {
  const value = message[name]
  if (value === null || typeof value === 'number') return value
  throw new Error(`${name} is neither a number nor null`)
}

function flag(message: Fields, name: string): boolean {
  const value = message[name]
  if (typeof value !== 'boolean') throw new Error(`${name} is not a boolean`)
  return value
}

function oneOf<T extends string>(message: Fields, name: string, values: readonly T[]): T {
  const found = values.find((value) => value === message[name])
  if (found === undefined) throw new Error(`${name} must be one of ${values.join(', ')}`)
  return found
}

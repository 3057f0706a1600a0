/** The options of requests and responses (RFC 7252 section 5.10, RFC 7641 section 2, RFC 7959 section 2.1). */
import { isUtf8 } from 'node:buffer'
import { ServiceError } from '#core/errors/index.ts'
import type { Block } from './blocks.ts'
import { parseBlock } from './blocks.ts'
import { CODES, EMPTY_BYTES } from './message.ts'
import type { CoapOption } from './message.ts'

export const OPTIONS = {
  uriHost: 3,
  etag: 4,
  observe: 6,
  uriPort: 7,
  uriPath: 11,
  contentFormat: 12,
  maxAge: 14,
  uriQuery: 15,
  accept: 17,
  block2: 23,
  block1: 27,
  proxyUri: 35,
  proxyScheme: 39,
  size1: 60,
  /** RFC 9175 section 2.2. */
  echo: 252,
  /** RFC 9175 section 3.2. */
  requestTag: 292,
} as const

/** Limits of the length in bytes; an option outside of them is treated as unknown (section 5.4.3). */
type Rule = { minBytes: number; maxBytes: number; isRepeatable?: true }

const RULES: ReadonlyMap<number, Rule> = new Map<number, Rule>([
  [OPTIONS.uriHost, { minBytes: 1, maxBytes: 255 }],
  [OPTIONS.etag, { minBytes: 1, maxBytes: 8, isRepeatable: true }],
  [OPTIONS.observe, { minBytes: 0, maxBytes: 3 }],
  [OPTIONS.uriPort, { minBytes: 0, maxBytes: 2 }],
  [OPTIONS.uriPath, { minBytes: 0, maxBytes: 255, isRepeatable: true }],
  [OPTIONS.contentFormat, { minBytes: 0, maxBytes: 2 }],
  [OPTIONS.uriQuery, { minBytes: 0, maxBytes: 255, isRepeatable: true }],
  [OPTIONS.accept, { minBytes: 0, maxBytes: 2 }],
  [OPTIONS.block2, { minBytes: 0, maxBytes: 3 }],
  [OPTIONS.block1, { minBytes: 0, maxBytes: 3 }],
  [OPTIONS.size1, { minBytes: 0, maxBytes: 4 }],
  [OPTIONS.requestTag, { minBytes: 0, maxBytes: 8, isRepeatable: true }],
])

export type RequestOptions = {
  /** The elements joined by `/`. */
  path: string
  queries: readonly string[]
  etags: readonly Buffer[]
  observe: number | undefined
  contentFormat: number | undefined
  accept: number | undefined
  block1: Block | undefined
  block2: Block | undefined
  /** The size of the whole body according to the peer. */
  size1: number | undefined
  requestTags: readonly Buffer[]
}

/** An error that only CoAP has, by its code. */
export class CoapRefusal extends Error {
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.name = 'CoapRefusal'
    this.code = code
  }
}

/** Throws a `CoapRefusal` for an unknown critical option, and `malformed` for invalid text or blocks. */
export function readOptions(options: readonly CoapOption[]): RequestOptions {
  const path: string[] = []
  const queries: string[] = []
  const etags: Buffer[] = []
  const requestTags: Buffer[] = []
  const single = new Map<number, Buffer>()
  for (const { number, value } of options) {
    if (number === OPTIONS.proxyUri || number === OPTIONS.proxyScheme)
      throw new CoapRefusal(CODES.proxyingNotSupported, 'Proxy-Uri and Proxy-Scheme are not supported')
    const rule = RULES.get(number)
    const isUnderstood =
      rule !== undefined &&
      value.length >= rule.minBytes &&
      value.length <= rule.maxBytes &&
      (rule.isRepeatable === true || !single.has(number))
    if (!isUnderstood) {
      // Odd numbers are critical (section 5.4.1); the others are ignored.
      if (number % 2 === 1) throw new CoapRefusal(CODES.badOption, `option ${number} is not supported`)
    } else if (number === OPTIONS.uriPath) path.push(pathElement(value))
    else if (number === OPTIONS.uriQuery) queries.push(textOf(value, 'query'))
    else if (number === OPTIONS.etag) etags.push(value)
    else if (number === OPTIONS.requestTag) requestTags.push(value)
    else single.set(number, value)
  }
  const uint = (number: number) => {
    const value = single.get(number)
    return value === undefined ? undefined : readUint(value)
  }
  return {
    path: path.join('/'),
    queries,
    etags,
    observe: uint(OPTIONS.observe),
    contentFormat: uint(OPTIONS.contentFormat),
    accept: uint(OPTIONS.accept),
    block1: parseBlock(uint(OPTIONS.block1)),
    block2: parseBlock(uint(OPTIONS.block2)),
    size1: uint(OPTIONS.size1),
    requestTags,
  }
}

/** An option with an integer value in the shortest form (section 3.2). */
export function uintOption(number: number, value: number): CoapOption {
  if (value === 0) return { number, value: EMPTY_BYTES }
  const bytes = value < 0x100 ? 1 : value < 0x1_0000 ? 2 : value < 0x100_0000 ? 3 : 4
  const buffer = Buffer.allocUnsafe(bytes)
  buffer.writeUIntBE(value, 0, bytes)
  return { number, value: buffer }
}

function readUint(value: Buffer): number {
  return value.length === 0 ? 0 : value.readUIntBE(0, value.length)
}

function pathElement(value: Buffer): string {
  const text = textOf(value, 'path')
  // It would become two elements in the joined path.
  if (text.includes('/')) throw new ServiceError('malformed', 'an element of the path must not contain a slash')
  return text
}

function textOf(value: Buffer, what: string): string {
  if (!isUtf8(value)) throw new ServiceError('malformed', `the ${what} must be UTF-8`)
  // PostgreSQL has no text with it, so nothing can have such a name.
  if (value.includes(0)) throw new ServiceError('malformed', `the ${what} must not contain a NUL`)
  return value.toString('utf8')
}

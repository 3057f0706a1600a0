/**
 * The head of a request that may be one for the express lane (RFC 9112 sections 2 to 5). It knows the plainest form alone: what is
 * said in any other way, doubtfully or twice is not read here but by Node's parser, so that there is one judge of what is valid.
 */
import { maxHeaderSize } from '../../node-http.ts'
import { withoutTrailing } from '../../text.ts'
import type { ExpressHead } from './lane.ts'

const HEAD_END = '\r\n\r\n'
const METHOD = Buffer.from('POST /')
const REQUEST_LINE = /^POST (\/[!-~]*) HTTP\/1\.1\r\n/
/** `token`, and a value of visible characters, spaces, tabs and bytes above ASCII (RFC 9110 sections 5.5 and 5.6.2). */
const FIELD = /([!#$%&'*+\-.^_`|~\dA-Za-z]+):([\t\x20-\x7e\x80-\xff]*)\r\n/y
/** RFC 9110 section 7.2: of a name or address and a port; nothing that could be read in two ways. */
const HOST = /^[\w.:[\]-]+$/

export type HeadReading =
  | { readonly kind: 'partial' }
  /** For Node's parser. */
  | { readonly kind: 'foreign' }
  | {
      readonly kind: 'head'
      readonly head: ExpressHead
      /** Of the body, from the first byte. */ readonly bodyStart: number
    }

const PARTIAL: HeadReading = { kind: 'partial' }
const FOREIGN: HeadReading = { kind: 'foreign' }

/** What is longer than Node takes is Node's to refuse. */
export function readHead(bytes: Buffer): HeadReading {
  if (bytes.compare(METHOD, 0, Math.min(bytes.length, METHOD.length), 0, Math.min(bytes.length, METHOD.length)) !== 0)
    return FOREIGN
  const end = bytes.indexOf(HEAD_END)
  if (end === -1) return bytes.length > maxHeaderSize ? FOREIGN : PARTIAL
  const bodyStart = end + HEAD_END.length
  if (bodyStart > maxHeaderSize) return FOREIGN
  const text = bytes.toString('latin1', 0, end + 2)
  const line = REQUEST_LINE.exec(text)
  if (line === null) return FOREIGN
  const headers: Record<string, string | undefined> = Object.create(null) as Record<string, string | undefined>
  for (let at = line[0].length; at < text.length; at = FIELD.lastIndex) {
    FIELD.lastIndex = at
    const field = FIELD.exec(text)
    if (field === null) return FOREIGN
    const name = (field[1] as string).toLowerCase()
    if (headers[name] !== undefined) return FOREIGN
    headers[name] = withoutSpace(field[2] as string)
  }
  return isPlain(headers) ? { kind: 'head', head: { url: line[1], headers }, bodyStart } : FOREIGN
}

/** A value without the spaces and tabs around it, in one pass over each end. */
function withoutSpace(value: string): string {
  let begin = 0
  while (value[begin] === ' ' || value[begin] === '\t') begin += 1
  return withoutTrailing(value.slice(begin), ' \t')
}

/** One host, and a connection that stays open. */
function isPlain({ host, connection }: Readonly<Record<string, string | undefined>>): boolean {
  if (host === undefined || !HOST.test(host)) return false
  return connection === undefined || connection.toLowerCase() === 'keep-alive'
}

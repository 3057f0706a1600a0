/** Block-wise transfers of requests (RFC 7959): their key, and the body of an upload. */
import type { Peer } from './endpoints.ts'
import type { CoapMessage } from './message.ts'
import type { RequestOptions } from './options.ts'
import type { Uploads } from './uploads.ts'

/**
 * The key that tells block-wise transfers of one resource apart: endpoint, method, path, queries, Content-Format, Accept and Request-Tag
 * (RFC 9175 section 3.3).
 */
export function transferKey(options: RequestOptions, { code }: CoapMessage, peer: Peer): string {
  const { path, queries, contentFormat, accept, requestTags } = options
  // An empty tag differs from none.
  const tags = requestTags.map((tag) => `#${tag.toString('hex')}`).join('')
  const asked = queries.map((query) => `${query.length} ${query}`).join('')
  return `${peer.key} ${code} ${contentFormat} ${accept} ${tags} ${asked}${path}`
}

/** Undefined: more blocks follow. */
export function uploadedBody(
  uploads: Uploads,
  { options, request, peer }: { options: RequestOptions; request: CoapMessage; peer: Peer },
): Buffer | undefined {
  const { block1: block, size1: declaredBytes } = options
  const { payload, token } = request
  if (block === undefined) return payload
  return uploads.take(transferKey(options, request, peer), { block, payload, token, declaredBytes })
}

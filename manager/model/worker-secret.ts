/** What a worker proves itself with. */
import { createHash } from 'node:crypto'

/** What is stored of a token or of a worker's secret; both have 256 random bits, so that a plain digest will do. */
export function digestSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

/** The secret of a worker. */
import { createHash } from 'node:crypto'

/** The stored form of a token or a worker's secret; both have 256 random bits, so a plain digest is sufficient. */
export function digestSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

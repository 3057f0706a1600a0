/** Checks a file of a release by its SHA256SUMS, and SHA256SUMS by the key of the release. */
import { createHash, createPublicKey, verify } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { ServiceError } from '#core/errors/index.ts'

const SUMS = 'SHA256SUMS'
/** Ed25519, 64 bytes, over the bytes of SHA256SUMS. */
const SIGNATURE = 'SHA256SUMS.sig'

export type Wanted = {
  file: string
  /** The digest in hexadecimal; undefined: SHA256SUMS beside the file has it. */
  sha256: string | undefined
  /** PEM of the public key of the running version; undefined: it was released without one. */
  releaseKey: string | undefined
}

/** Returns the digest in hexadecimal. Throws `unprocessable` with the reason if the file is not to be trusted. */
export async function verifyRelease({ file, sha256, releaseKey }: Wanted): Promise<string> {
  const folder = dirname(file)
  const refuse = (reason: string): never => {
    throw new ServiceError('unprocessable', `${file} is refused: ${reason}`)
  }
  const hash = createHash('sha256')
  await pipeline(createReadStream(file), hash).catch((error: Error) => refuse(error.message))
  const found = hash.digest('hex')
  const sums = await readFile(join(folder, SUMS)).catch(() => undefined)
  if (releaseKey !== undefined) {
    const signature = await readFile(join(folder, SIGNATURE)).catch(() => undefined)
    if (sums === undefined || signature === undefined)
      return refuse(`this version was released with a key, and ${SUMS} or ${SIGNATURE} is missing beside the file`)
    if (!verify(null, sums, createPublicKey(releaseKey), signature))
      return refuse(`${SIGNATURE} is not a signature of ${SUMS} by the key of this version`)
  }
  const listed = sums === undefined ? undefined : digestIn(sums.toString('utf8'), basename(file))
  if (releaseKey !== undefined && listed === undefined) return refuse(`${SUMS} does not list it`)
  const wanted = sha256?.toLowerCase() ?? listed
  if (wanted === undefined)
    return refuse(`its SHA-256 is unknown: put ${SUMS} of the release beside it, or add the digest to the command`)
  if (!/^[0-9a-f]{64}$/.test(wanted)) return refuse(`${wanted} is no SHA-256 in hexadecimal`)
  if (found !== wanted || (listed !== undefined && found !== listed))
    return refuse(`its SHA-256 is ${found} instead of ${found === wanted ? listed : wanted}`)
  return found
}

function digestIn(sums: string, name: string): string | undefined {
  return sums
    .split('\n')
    .map((line) => /^([0-9a-f]{64}) [ *](.+)$/.exec(line))
    .find((found) => found?.[2] === name)?.[1]
}

/**
 * The text of a personal access token (contract section 6): `pat_`, user id and token id in base64url, `_`, 32 random
 * bytes. The ids identify the row, which contains the hash of the whole text.
 */
import { newToken } from '#core/ids.ts'
import { PAT_PREFIX } from '../tokens/index.ts'

const UUID_BYTES = 16
/** 32 bytes in base64url. */
const PART_CHARS = 43
const FORM = new RegExp(`^${PAT_PREFIX}([A-Za-z0-9_-]{${PART_CHARS}})_[A-Za-z0-9_-]{${PART_CHARS}}$`)

const bytesOf = (id: string) => Buffer.from(id.replaceAll('-', ''), 'hex')

function idOf(bytes: Buffer): string {
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

export function newPatSecret(userId: string, patId: string): string {
  return `${PAT_PREFIX}${Buffer.concat([bytesOf(userId), bytesOf(patId)]).toString('base64url')}_${newToken()}`
}

/** Returns the ids in the text of a token. Undefined for any other text. */
export function parsePatSecret(text: string): { userId: string; patId: string } | undefined {
  const encoded = FORM.exec(text)?.[1]
  if (encoded === undefined) return undefined
  const bytes = Buffer.from(encoded, 'base64url')
  return { userId: idOf(bytes.subarray(0, UUID_BYTES)), patId: idOf(bytes.subarray(UUID_BYTES)) }
}

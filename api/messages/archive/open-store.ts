/** The store of a URL, and its failures in words. What speaks to object stores is loaded where there is one. */
import { ServiceError } from '#core/errors/index.ts'
import type { ArchiveConfig } from './config.ts'
import { folderFailure, folderStore, isFolderExhausted } from './file-store.ts'
import { isS3Exhausted, s3Failure } from './s3-error.ts'
import type { S3Target } from './s3-target.ts'
import type { ArchiveStore } from './store.ts'

const IN_BUCKET = 's3://'
const REGION = /^[a-zA-Z\d-]{1,64}$/
/** The id of a key is part of a header. The error of another one would have it in its text. */
const KEY_ID = /^[\w+/=.:@-]{1,256}$/
/** The bucket cannot be in the name of such a host. */
const IP_ADDRESS = /^(?:[\d.]+|\[.*\])$/

/** Undefined: the archive is no bucket. Throws `malformed` when a setting is missing. */
export function s3TargetOf(config: ArchiveConfig): S3Target | undefined {
  const { url, region, isPathStyle, accessKey, secretKey } = config
  if (url?.startsWith(IN_BUCKET) !== true) return undefined
  if (accessKey === undefined || secretKey === undefined)
    throw new ServiceError(
      'malformed',
      'SKEIN_ARCHIVE_S3_ACCESS_KEY and SKEIN_ARCHIVE_S3_SECRET_KEY are required when SKEIN_ARCHIVE_URL names a bucket',
    )
  if (!REGION.test(region))
    throw new ServiceError('malformed', 'SKEIN_ARCHIVE_S3_REGION must be a name such as us-east-1')
  if (!KEY_ID.test(accessKey.reveal()))
    throw new ServiceError('malformed', 'SKEIN_ARCHIVE_S3_ACCESS_KEY must be the id of a key, without spaces')
  const endpoint = config.endpoint ?? `https://s3.${region}.amazonaws.com`
  if (!isPathStyle && IP_ADDRESS.test(new URL(endpoint).hostname))
    throw new ServiceError(
      'malformed',
      'SKEIN_ARCHIVE_S3_PATH_STYLE must be true when SKEIN_ARCHIVE_S3_ENDPOINT has an IP address',
    )
  return { endpoint, region, isPathStyle, accessKey, secretKey, lacks: new Set() }
}

/** The store of this URL. The signal ends requests that wait. */
export async function openStore(url: string, s3: S3Target | undefined, signal?: AbortSignal): Promise<ArchiveStore> {
  if (!url.startsWith(IN_BUCKET)) return folderStore()
  if (s3 === undefined)
    throw new ServiceError('unavailable', 'the archive is in a bucket that SKEIN_ARCHIVE_URL does not name')
  return (await import('./s3-store.ts')).s3Store({ target: s3, signal })
}

/** What is wrong with the store, if the error says that something is. */
export const storeFailure = (error: unknown): string | undefined => s3Failure(error) ?? folderFailure(error)

/** Whether nothing more can be written to the store, whatever it is. */
export const isStoreExhausted = (error: unknown): boolean => isS3Exhausted(error) || isFolderExhausted(error)

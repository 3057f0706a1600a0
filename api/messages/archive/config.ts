/** Settings of the archive. */
import { durationMs, flag, optionalFolderUrl, optionalUrl, secret, text } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const ARCHIVE_SETTINGS = {
  url: optionalFolderUrl(
    'SKEIN_ARCHIVE_URL',
    'Where records are copied as Apache Iceberg tables for other engines: a folder as file:///path, or a bucket of an S3-compatible store as s3://bucket/prefix. It must be the same on every node. none: no copy is made',
  ),
  afterMs: durationMs(
    'SKEIN_ARCHIVE_AFTER',
    '840h',
    'Time after which records that arrived in the same week are copied to the archive, counted from the end of the week; at least 1h',
  ),
  endpoint: optionalUrl(
    'SKEIN_ARCHIVE_S3_ENDPOINT',
    ['https', 'http'],
    'Address of the S3-compatible store of the archive, without the bucket. none: Amazon S3 in SKEIN_ARCHIVE_S3_REGION',
  ),
  region: text(
    'SKEIN_ARCHIVE_S3_REGION',
    'us-east-1',
    'Region of the bucket of the archive, which is part of each signature; R2 calls it auto, and Garage garage',
  ),
  isPathStyle: flag(
    'SKEIN_ARCHIVE_S3_PATH_STYLE',
    true,
    'Whether requests name the bucket of the archive in the path. false: in the name of the host',
  ),
  accessKey: secret('SKEIN_ARCHIVE_S3_ACCESS_KEY', 'Id of the access key for the bucket of the archive'),
  secretKey: secret('SKEIN_ARCHIVE_S3_SECRET_KEY', 'Secret of the access key for the bucket of the archive'),
} as const

export type ArchiveConfig = ConfigOf<typeof ARCHIVE_SETTINGS>

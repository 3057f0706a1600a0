/** Settings of the archive. */
import { durationMs, optionalFolderUrl } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const ARCHIVE_SETTINGS = {
  url: optionalFolderUrl(
    'SKEIN_ARCHIVE_URL',
    'Folder into which records are copied as Apache Iceberg tables for other engines, as file:///path. It must be the same on every node. none: no copy is made',
  ),
  afterMs: durationMs(
    'SKEIN_ARCHIVE_AFTER',
    '840h',
    'Time after which records that arrived in the same week are copied to the archive, counted from the end of the week; at least 1h',
  ),
} as const

export type ArchiveConfig = ConfigOf<typeof ARCHIVE_SETTINGS>

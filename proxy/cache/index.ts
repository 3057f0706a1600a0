/** The disk caches of the proxy: blobs by digest, and the digests of references. */
export { BlobCache, readInPieces } from './blobs.ts'
export type { Blob, OpenBlob } from './blobs.ts'
export { openRecords } from './records.ts'
export type { Records } from './records.ts'
export { openTagCache } from './tags.ts'
export type { ResolvedTag, TagCache } from './tags.ts'

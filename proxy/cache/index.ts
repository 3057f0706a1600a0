/** What the proxy keeps on disk: blobs by digest, and what references stood for. */
export { BlobCache, readInPieces } from './blobs.ts'
export type { Blob, OpenBlob } from './blobs.ts'
export { openRecords } from './records.ts'
export type { Records } from './records.ts'
export { openTagCache } from './tags.ts'
export type { TagAnswer, TagCache } from './tags.ts'

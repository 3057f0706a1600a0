/** What the proxy keeps on disk: modules by digest, and what references stood for. */
export { PIECE_BYTES, openBlobCache, readInPieces } from './blobs.ts'
export type { Blob, BlobCache, OpenBlob, Scratch } from './blobs.ts'
export { openRecords } from './records.ts'
export type { Records } from './records.ts'
export { openTagCache } from './tags.ts'
export type { TagAnswer, TagCache } from './tags.ts'

/**
 * Writes one Parquet file in row groups, which bound what is held in memory. Runs in a thread: a row group of 50,000 records takes a
 * quarter of a second.
 */
import { closeSync, fchmodSync, fsyncSync, openSync, writeSync } from 'node:fs'
import { constants, zstdCompressSync } from 'node:zlib'
import { ByteWriter, ParquetWriter } from 'hyparquet-writer'
import { COLUMNS, PARQUET_SCHEMA } from './columns.ts'
import type { Value } from './copied-rows.ts'
import { FILE_MODE } from './file-store.ts'
import { StatisticsOfFile } from './statistics.ts'
import type { FileStatistics } from './statistics.ts'

const GROUP_ROWS = 50_000
/** Texts and data of a row group. Records may be large: rows alone bound nothing. */
const GROUP_BYTES = 16 * 1024 * 1024
const COMPRESSION_LEVEL = 3

export type DataFileFacts = { rows: number; bytes: number; statistics: FileStatistics }

/** Engines that filter by name read only the row groups that can have it. */
const WITH_FILTER = new Set(['name'])
/** Repeated times compress better plain: deltas hide that records of one message share their time. */
const compress = (bytes: Uint8Array) =>
  new Uint8Array(zstdCompressSync(bytes, { params: { [constants.ZSTD_c_compressionLevel]: COMPRESSION_LEVEL } }))

export class DataFile {
  readonly #descriptor: number | undefined
  #output: Uint8Array<ArrayBuffer>[] = []
  readonly #writer: ByteWriter
  readonly #parquet: ParquetWriter
  readonly #statistics = new StatisticsOfFile()
  #columns: Value[][] = COLUMNS.map(() => [])
  #groupBytes = 0
  #rows = 0
  #written = 0

  /** The file must not exist. Without a path, `takeOutput` returns what is to be written. */
  constructor(path: string | undefined) {
    if (path !== undefined) {
      this.#descriptor = openSync(path, 'wx', FILE_MODE)
      fchmodSync(this.#descriptor, FILE_MODE)
    }
    this.#writer = new ByteWriter()
    this.#parquet = new ParquetWriter({
      writer: this.#writer,
      schema: PARQUET_SCHEMA,
      codec: 'ZSTD',
      compressors: { ZSTD: compress },
      createdBy: 'skein',
    })
  }

  get rows(): number {
    return this.#rows
  }

  /** Bytes of the row groups that are complete. */
  get bytes(): number {
    return this.#written
  }

  add(values: readonly Value[]): void {
    this.#statistics.add(values)
    for (let column = 0; column < values.length; column++) {
      const value = values[column] as Value
      ;(this.#columns[column] as Value[]).push(value)
      if (typeof value === 'string') this.#groupBytes += value.length
      else if (value instanceof Uint8Array) this.#groupBytes += value.length
    }
    this.#rows += 1
    if ((this.#columns[0] as Value[]).length >= GROUP_ROWS || this.#groupBytes >= GROUP_BYTES) this.#writeGroup()
  }

  /** What was written since the last call. */
  takeOutput(): Uint8Array<ArrayBuffer>[] {
    const output = this.#output
    this.#output = []
    return output
  }

  /** Complete afterwards, and on disk if it has a path. */
  close(): DataFileFacts {
    this.#writeGroup()
    void this.#parquet.finish()
    this.#flush()
    if (this.#descriptor !== undefined) {
      fsyncSync(this.#descriptor)
      closeSync(this.#descriptor)
    }
    return { rows: this.#rows, bytes: this.#written, statistics: this.#statistics.result() }
  }

  #writeGroup(): void {
    const [first] = this.#columns
    if (first === undefined || first.length === 0) return
    void this.#parquet.write({
      columnData: COLUMNS.map(({ name }, index) => ({
        name,
        data: this.#columns[index] as Value[],
        bloomFilter: WITH_FILTER.has(name),
      })),
      rowGroupSize: first.length,
    })
    this.#columns = COLUMNS.map(() => [])
    this.#groupBytes = 0
    this.#flush()
  }

  #flush(): void {
    const bytes = this.#writer.getBytes()
    if (this.#descriptor === undefined) {
      if (bytes.length > 0) this.#output.push(bytes.slice())
    } else for (let at = 0; at < bytes.length;) at += writeSync(this.#descriptor, bytes, at)
    this.#written += bytes.length
    // The writer counts offsets apart from its buffer, which is empty again after it was written.
    this.#writer.index = 0
  }
}

/** Where the archive lies: a folder, or a bucket of an S3-compatible store. Files are named by URL. */
/** Of a small file that is replaced: what another writer must not have changed. Undefined where the store cannot tell. */
export type TextVersion = string | undefined

/** A data file that is being written. */
export type NewFile = {
  /** The thread that makes the bytes writes them there; undefined: they are passed to `write`, in order. */
  readonly path: string | undefined
  write(bytes: Uint8Array<ArrayBuffer>): Promise<void>
  /** The file is complete and durable afterwards. */
  close(): Promise<void>
  /** Gives back what the file holds in the store, as far as that is possible. Does not reject. */
  abort(): Promise<void>
}

export type RemovedFile = {
  path: string
  /** It was never complete. */
  isPartial: boolean
}

export type ArchiveStore = {
  /** A data file is closed when it has so many bytes. */
  readonly maxFileBytes: number
  /** Rejects when the file exists, as far as the store can tell. */
  beginFile(url: string): Promise<NewFile>
  /** Writes a small file whole; it is durable afterwards. */
  writeNewFile(url: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>
  /** Undefined if the file does not exist. */
  readText(url: string): Promise<{ text: string; version: TextVersion } | undefined>
  /**
   * Replaces a small file whole. `before`: what was read; undefined: there was no file. Rejects with `ChangedByOther` when the store knows
   * that another writer came first.
   */
  replaceText(url: string, text: string, before: { version: TextVersion } | undefined): Promise<void>
  /** Undefined: there is no such file. */
  sizeOf(url: string): Promise<number | undefined>
  /** When the file was last written, in milliseconds; undefined: there is no such file. */
  writtenAtMs(url: string): Promise<number | undefined>
  /** Names directly below, some at a time; none if there is no such folder. */
  namesIn(url: string): AsyncGenerator<{ name: string; isFolder: boolean }>
  /** A file that is gone is no error. Errors by path. */
  removeFiles(files: readonly RemovedFile[]): Promise<Map<string, unknown>>
  /** Gives up own files below that were begun before this time and never completed. Their number. */
  removeBegun(url: string, beforeMs: number, isOwn: (path: string) => boolean): Promise<number>
  /** What an operator should change, for the log. Called after files were written below. */
  warningFor(url: string): Promise<string | undefined>
}

/** Another writer has replaced the file meanwhile. */
export class ChangedByOther extends Error {}

/** Files that are looked at together. */
export const SIZES_AT_ONCE = 16

/** The sizes of many files: an object store answers each after a while. An error in the place of a size is that of its file. */
export async function sizesOf(
  store: Pick<ArchiveStore, 'sizeOf'>,
  urls: readonly string[],
): Promise<({ size: number | undefined } | { error: unknown })[]> {
  const sizes: ({ size: number | undefined } | { error: unknown })[] = []
  for (let first = 0; first < urls.length; first += SIZES_AT_ONCE)
    sizes.push(
      ...(await Promise.all(
        urls.slice(first, first + SIZES_AT_ONCE).map(async (url) => {
          try {
            return { size: await store.sizeOf(url) }
          } catch (error) {
            return { error }
          }
        }),
      )),
    )
  return sizes
}

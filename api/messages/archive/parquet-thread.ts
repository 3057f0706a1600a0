/** Turns copied rows into Parquet files, in a thread of its own. */
import { parentPort } from 'node:worker_threads'
import { COLUMNS } from './columns.ts'
import { CopiedRows } from './copied-rows.ts'
import { DataFile } from './data-file.ts'
import type { ParquetJob, ParquetResult } from './parquet-files.ts'

let file: DataFile | undefined
let rows: CopiedRows | undefined

function openFile(): DataFile {
  if (file === undefined) throw new Error('no file is open')
  return file
}

function handle(job: ParquetJob): ParquetResult {
  switch (job.kind) {
    case 'open':
      file = new DataFile(job.path)
      break
    case 'copy':
      rows = new CopiedRows(
        COLUMNS.map(({ type }) => type),
        (values) => openFile().add(values),
      )
      break
    case 'rows':
      rows?.take(Buffer.from(job.bytes.buffer, job.bytes.byteOffset, job.bytes.byteLength))
      break
    case 'copied':
      rows?.end()
      rows = undefined
      break
    case 'close': {
      const closing = openFile()
      const facts = closing.close()
      const output = closing.takeOutput()
      file = undefined
      return { kind: 'closed', facts, output }
    }
  }
  return { kind: 'done', rows: file?.rows ?? 0, bytes: file?.bytes ?? 0, output: file?.takeOutput() ?? [] }
}

parentPort?.on('message', (job: ParquetJob) => {
  let result: ParquetResult
  try {
    result = handle(job)
  } catch (error) {
    const { code, syscall } = (error ?? {}) as NodeJS.ErrnoException
    result = { kind: 'failed', reason: error instanceof Error ? error.message : String(error), code, syscall }
  }
  parentPort?.postMessage(result, 'output' in result ? result.output.map(({ buffer }) => buffer) : [])
})

/** The thread that parses documents, one at a time. The caller terminates it when it exceeds its deadline. */
import { parentPort } from 'node:worker_threads'
import { convertDocument } from './notations.ts'
import type { Notation, Conversion } from './notations.ts'

export type DocumentJob = { wanted: Conversion; notation: Notation; text: string }

parentPort?.on('message', ({ wanted, notation, text }: DocumentJob) => {
  void convertDocument(wanted, notation, text).then((converted) => parentPort?.postMessage(converted))
})

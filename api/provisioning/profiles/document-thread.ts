/** The thread that reads documents: one at a time; whoever waits for one ends the thread when it takes too long. */
import { parentPort } from 'node:worker_threads'
import { convertDocument } from './notations.ts'
import type { Notation, Wanted } from './notations.ts'

export type DocumentJob = { wanted: Wanted; notation: Notation; text: string }

parentPort?.on('message', ({ wanted, notation, text }: DocumentJob) => {
  void convertDocument(wanted, notation, text).then((converted) => parentPort?.postMessage(converted))
})

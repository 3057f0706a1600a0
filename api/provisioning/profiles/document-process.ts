/** The process that parses documents, one at a time. The caller ends it when it exceeds its deadline. */
import { convertDocument } from './notations.ts'
import type { Conversion, Notation } from './notations.ts'

export type DocumentJob = { wanted: Conversion; notation: Notation; text: string }

process.on('message', ({ wanted, notation, text }: DocumentJob) => {
  void convertDocument(wanted, notation, text).then((converted) => process.send?.(converted))
})

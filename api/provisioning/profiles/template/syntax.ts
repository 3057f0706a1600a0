/** What a template is made of once it was read. */
import type { FunctionName } from './functions.ts'

/** Why a template cannot be read or filled in. Says where, and never a value. */
export class TemplateFault extends Error {
  constructor(message: string, line: number) {
    super(`${message} (line ${line} of the template)`)
    this.name = 'TemplateFault'
  }
}

export type Expression =
  | { kind: 'literal'; value: string | number | boolean | null }
  /** `.`, `$` and `$name`, with the fields behind them. */
  | { kind: 'dot'; fields: readonly string[] }
  | { kind: 'variable'; name: string; fields: readonly string[] }
  | { kind: 'call'; name: FunctionName }
  | { kind: 'pipeline'; pipeline: Pipeline; fields: readonly string[] }

/** The result of each command is the last argument of the next. */
export type Pipeline = {
  line: number
  /** Variables that take the result; two of them in a range: key and element. */
  declared: readonly string[]
  /** `:=`; else an existing variable gets a new value. */
  isNew: boolean
  commands: readonly (readonly Expression[])[]
}

export type Node = { kind: 'text'; text: string } | { kind: 'action'; pipeline: Pipeline } | Block

export type Block = { kind: 'if' | 'with' | 'range'; pipeline: Pipeline; body: Node[]; otherwise: Node[] }

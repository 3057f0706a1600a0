/** The syntax tree of a template. */
import type { FunctionName } from './functions.ts'

/** An error of parsing or evaluating a template. It contains the line, never a value. */
export class TemplateFault extends Error {
  constructor(message: string, line: number) {
    super(`${message} (line ${line} of the template)`)
    this.name = 'TemplateFault'
  }
}

export type Expression =
  | { kind: 'literal'; value: string | number | boolean | null }
  /** `.`, `$` and `$name`, with the fields that follow. */
  | { kind: 'dot'; fields: readonly string[] }
  | { kind: 'variable'; name: string; fields: readonly string[] }
  | { kind: 'call'; name: FunctionName }
  | { kind: 'pipeline'; pipeline: Pipeline; fields: readonly string[] }

/** The result of each command becomes the last argument of the next. */
export type Pipeline = {
  line: number
  /** Variables that are assigned the result. A range can have two: key and element. */
  declared: readonly string[]
  /** True for `:=`. False assigns to an existing variable. */
  isNew: boolean
  commands: readonly (readonly Expression[])[]
}

export type Node = { kind: 'text'; text: string } | { kind: 'action'; pipeline: Pipeline } | Block

export type Block = { kind: 'if' | 'with' | 'range'; pipeline: Pipeline; body: Node[]; otherwise: Node[] }

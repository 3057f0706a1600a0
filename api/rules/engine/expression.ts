/** Compiles an expression once and evaluates it for each record. */
import { EvaluationError, ParseError, TypeError as CheckError } from '@marcbachmann/cel-js'
import { EvaluationFailure, ExpressionError } from './expression-error.ts'
import { Reading } from './reading.ts'
import { beginSteps, endSteps, limitWork } from './work.ts'
import { FUNCTIONS, LANGUAGE, MAX_DEPTH, MAX_NODES, OWN_ERROR, useWindows, windowOf } from './language.ts'
import { callOf, childrenOf } from './syntax-tree.ts'
import type { SyntaxNode } from './syntax-tree.ts'
import type { RuleVariables } from './variables.ts'
import type { WindowReader, WindowRequest } from './window-reader.ts'

export const MAX_EXPRESSION_BYTES = 4096
const MAX_REASON_CHARS = 200

/** The kind of result. Boolean and number are checked when the expression is compiled, as far as its types are known, and in each evaluation. */
export type Wanted = 'boolean' | 'number' | 'any'

export type Expression = {
  readonly source: string
  readonly variables: ReadonlySet<string>
  /** The windows that it asks for; the caller keeps the values of those series. */
  readonly windows: readonly WindowRequest[]
  /**
   * The result for one record: a boolean or a number if that was wanted, otherwise a value of the language, in which an integer is a bigint.
   * Throws EvaluationFailure if the expression has no result for it.
   */
  evaluate(variables: RuleVariables, windows?: WindowReader): unknown
}

/** Throws ExpressionError, which names `path`, for an expression that is not accepted. */
export function compileExpression(source: string, want: Wanted, path = 'expression'): Expression {
  const refuse = (at: number, sentence: string) => new ExpressionError(path, source, at, sentence)
  if (Buffer.byteLength(source) > MAX_EXPRESSION_BYTES) {
    throw refuse(0, `an expression has at most ${MAX_EXPRESSION_BYTES} bytes`)
  }
  let parsed: ReturnType<typeof LANGUAGE.parse>
  try {
    parsed = LANGUAGE.parse(source)
  } catch (error) {
    throw refuse(...describe(error, source))
  }
  const tree = parsed.ast as unknown as SyntaxNode
  const reading = new Reading()
  reading.readTree(tree)
  if (reading.refusal !== undefined) throw refuse(reading.refusal.at, reading.refusal.sentence)
  const { valid, type, error } = parsed.check()
  if (!valid) throw refuse(...describe(error, source))
  if (!RESULT_TYPES[want].accepts(type ?? '')) {
    throw refuse(0, `the result must be ${RESULT_TYPES[want].sentence}, and it is ${type}`)
  }
  limitWork(tree, source)
  const windows: WindowRequest[] = []
  collectWindows(tree, windows)
  // An absent variable is an error in every branch of an expression without them, and an error of the library costs more than the evaluation.
  const required = isStraight(tree) ? [...reading.variables] : []
  return {
    source,
    variables: reading.variables,
    windows,
    evaluate(variables, reader) {
      for (const name of required) if (variables[name as keyof RuleVariables] === undefined) throw absent(name)
      beginSteps()
      useWindows(reader)
      let result: unknown
      const { stackTraceLimit } = Error
      // Errors of the library are results here, as of a field that a record does not have, and a stack costs more than an evaluation.
      Error.stackTraceLimit = 0
      try {
        result = parsed(variables)
      } catch (thrown) {
        throw failureOf(thrown)
      } finally {
        Error.stackTraceLimit = stackTraceLimit
        useWindows(undefined)
      }
      endSteps()
      return RESULT_TYPES[want].convert(result)
    },
  }
}

type ResultType = { sentence: string; accepts(type: string): boolean; convert(result: unknown): unknown }

const RESULT_TYPES: Readonly<Record<Wanted, ResultType>> = {
  boolean: {
    sentence: 'true or false, as of value > 30.0',
    accepts: (type) => type === 'bool' || type === 'dyn',
    convert: (result) => {
      if (typeof result === 'boolean') return result
      throw new EvaluationFailure('the result is neither true nor false')
    },
  },
  number: {
    sentence: 'a number, as of value * 1.8 + 32.0',
    accepts: (type) => type === 'int' || type === 'double' || type === 'dyn',
    convert: (result) => {
      const number = typeof result === 'bigint' ? Number(result) : result
      if (typeof number === 'number' && Number.isFinite(number)) return number
      throw new EvaluationFailure('the result is no finite number')
    },
  },
  any: { sentence: 'a value', accepts: () => true, convert: (result) => result },
}

function collectWindows(node: SyntaxNode, windows: WindowRequest[]): void {
  const call = callOf(node)
  const request = call === undefined || call.receiver !== undefined ? undefined : windowOf(call.name, call.args)
  if (request !== undefined) windows.push(request)
  else for (const child of childrenOf(node)) collectWindows(child, windows)
}

/** Whether every part of the tree is evaluated, and no error in a part is dropped. */
function isStraight(node: SyntaxNode): boolean {
  if (node.op === '||' || node.op === '&&' || node.op === '?:' || node.meta.alternate !== undefined) return false
  return childrenOf(node).every(isStraight)
}

const absentNames = new Map<string, EvaluationFailure>()

/** One object for each name: a new stack for each record would cost more than the evaluation. */
function absent(name: string): EvaluationFailure {
  let failure = absentNames.get(name)
  if (failure === undefined) {
    failure = new EvaluationFailure(`the record has no ${name}`)
    absentNames.set(name, failure)
  }
  return failure
}

/** The failure for anything that an evaluation throws: errors of the library and of JavaScript, such as an overflow of the stack. */
function failureOf(thrown: unknown): EvaluationFailure {
  if (thrown instanceof EvaluationFailure) return thrown
  if (thrown instanceof EvaluationError) {
    const name = thrown.code === 'unknown_variable' ? thrown.summary.replace('Unknown variable: ', '') : undefined
    return name === undefined ? new EvaluationFailure(cutText(lowerFirst(thrown.summary))) : absent(name)
  }
  return new EvaluationFailure(thrown instanceof RangeError ? 'the expression is too complex' : 'the types do not fit')
}

/** A message of the library contains names of fields, which come from messages. */
const cutText = (text: string) => (text.length > MAX_REASON_CHARS ? `${text.slice(0, MAX_REASON_CHARS)}…` : text)

const lowerFirst = (text: string) => text.charAt(0).toLowerCase() + text.slice(1)

/** Tokens of the library, as they are written. */
const TOKENS: Readonly<Record<string, string>> = {
  EOF: 'the end',
  LPAREN: '(',
  RPAREN: ')',
  LBRACKET: '[',
  RBRACKET: ']',
  LBRACE: '{',
  RBRACE: '}',
  COMMA: ',',
  COLON: ':',
  DOT: '.',
  QUESTION: '?',
  NUMBER: 'a number',
  STRING: 'a text',
  IDENTIFIER: 'a name',
  PLUS: '+',
  MINUS: '-',
  MULTIPLY: '*',
  DIVIDE: '/',
  MODULO: '%',
  EQ: '==',
  NE: '!=',
  LT: '<',
  LE: '<=',
  GT: '>',
  GE: '>=',
  AND: '&&',
  OR: '||',
  NOT: '!',
  IN: 'in',
}

const EXAMPLE = 'an expression such as value > 30.0 && name == "temperature" is accepted'
const LIMITS = `an expression has at most ${MAX_NODES} parts, and ${MAX_DEPTH} inside each other`

/** Where an error of the library is, and the sentence for it. */
function describe(error: unknown, source: string): [at: number, sentence: string] {
  if (!(error instanceof ParseError || error instanceof CheckError)) {
    return [0, error instanceof RangeError ? LIMITS : `the types of the parts do not fit; ${EXAMPLE}`]
  }
  const at = Math.min(error.range?.start ?? 0, source.length)
  const { code } = error
  const summary = lowerFirst(error.summary)
  if (code === OWN_ERROR) return [at, error.summary]
  if (code === 'limit_exceeded') return [at, LIMITS]
  if (code === 'no_such_overload') {
    return [
      at,
      `${summary.replace('no such overload: ', 'there is no operator ')}; both sides must be numbers, texts, times or durations`,
    ]
  }
  if (code === 'no_matching_overload') {
    const name = /'(?:[^'()]*\.)?(\w+)\(/.exec(error.summary)?.[1] ?? ''
    return [at, `${summary}; accepted: ${FUNCTIONS[name] ?? Object.keys(FUNCTIONS).join(', ')}`]
  }
  if (error instanceof ParseError) {
    return [at, `${summary.replaceAll(/\b[A-Z]{2,}\b/g, (token) => TOKENS[token] ?? token)}; ${EXAMPLE}`]
  }
  return [at, summary]
}

/**
 * Parses a template in the subset of Go's text/template that profiles of Magistrala use. It can neither define
 * functions nor access files or the network. Unknown constructs are rejected here.
 */
import { FUNCTIONS, isFunction, wellFormed } from './functions.ts'
import type { Block, Expression, Node, Pipeline } from './syntax.ts'
import { TemplateFault } from './syntax.ts'
import { piecesOf } from './tokens.ts'
import type { Piece, Token } from './tokens.ts'

/** Maximum nesting of blocks, and of parentheses. */
const MAX_DEPTH = 32
/** Maximum number of commands of a pipeline, and of arguments of a command. */
const MAX_ARGUMENTS = 32

/** An open block. `nodes` receives the next node. */
type Open = { node: Block; nodes: Node[]; hasElse: boolean; closesWith: number; line: number }

const BLOCKS = new Set(['if', 'with', 'range'])
const REFUSED = new Set(['define', 'template', 'block', 'break', 'continue'])

/** Throws `TemplateFault` for an invalid template. */
export function parseTemplate(template: string): Node[] {
  const root: Node[] = []
  const open: Open[] = []
  const here = () => open.at(-1)?.nodes ?? root
  for (const piece of piecesOf(wellFormed(template, failingAt(1)))) {
    if (piece.kind === 'text') here().push(piece)
    else readAction(piece, open, here)
  }
  const [unclosed] = open.slice(-1)
  if (unclosed !== undefined) throw new TemplateFault(`{{${unclosed.node.kind}}} has no {{end}}`, unclosed.line)
  return root
}

function readAction({ tokens, line }: Extract<Piece, { kind: 'action' }>, open: Open[], here: () => Node[]): void {
  const fault = (message: string) => new TemplateFault(message, line)
  const [first] = tokens
  if (first === undefined) throw fault('an action is empty')
  const word = first.kind === 'word' ? first.text : ''
  if (REFUSED.has(word)) throw fault(`{{${word}}} is not supported`)
  if (BLOCKS.has(word)) {
    const kind = word as Block['kind']
    if (open.length >= MAX_DEPTH) throw fault(`more than ${MAX_DEPTH} nested blocks`)
    const block = openBlock(kind, tokens.slice(1), line, 1)
    here().push(block.node)
    open.push(block)
  } else if (word === 'else') {
    const current = open.at(-1)
    if (current === undefined || current.hasElse) throw fault('{{else}} without {{if}}, {{with}} or {{range}}')
    const otherwise: Node[] = []
    current.node.otherwise = otherwise
    current.hasElse = true
    current.nodes = otherwise
    const next = tokens[1]
    if (next === undefined) return
    if (next.kind !== 'word' || next.text !== current.node.kind || current.node.kind === 'range')
      throw fault('{{else}} may only be followed by a condition of the same kind')
    if (open.length >= MAX_DEPTH) throw fault(`more than ${MAX_DEPTH} chained conditions`)
    const chained = openBlock(current.node.kind, tokens.slice(2), line, current.closesWith + 1)
    otherwise.push(chained.node)
    open.push(chained)
  } else if (word === 'end') {
    const current = open.at(-1)
    if (current === undefined) throw fault('{{end}} without a block')
    if (tokens.length > 1) throw fault('{{end}} may not be followed by other words')
    open.splice(-current.closesWith)
  } else {
    here().push({ kind: 'action', pipeline: pipelineOf(tokens, line, 1) })
  }
}

function openBlock(kind: Block['kind'], tokens: readonly Token[], line: number, closesWith: number): Open {
  const nodes: Node[] = []
  const pipeline = pipelineOf(tokens, line, kind === 'range' ? 2 : 1)
  return { node: { kind, pipeline, body: nodes, otherwise: [] }, nodes, hasElse: false, closesWith, line }
}

function pipelineOf(tokens: readonly Token[], line: number, maxDeclared: number): Pipeline {
  const reader = { tokens, at: 0, line, depth: 0 }
  const pipeline = readPipeline(reader, maxDeclared)
  const left = tokens[reader.at]
  if (left !== undefined) throw new TemplateFault(`unexpected "${left.text}"`, line)
  return pipeline
}

type Reader = { tokens: readonly Token[]; at: number; line: number; depth: number }

function readPipeline(reader: Reader, maxDeclared: number): Pipeline {
  const { declared, isNew } = readDeclaration(reader, maxDeclared)
  const commands: Expression[][] = []
  do {
    const command = readCommand(reader)
    const [first] = command
    if (first === undefined) throw new TemplateFault('a value is missing', reader.line)
    if (commands.length > 0 && first.kind !== 'call')
      throw new TemplateFault('| must be followed by a function', reader.line)
    requireArguments(command, commands.length > 0, reader.line)
    commands.push(command)
    if (commands.length > MAX_ARGUMENTS) throw new TemplateFault('a pipeline is too long', reader.line)
  } while (take(reader, '|'))
  return { line: reader.line, declared, isNew, commands }
}

/** `$x :=`, `$x =` and `$key, $element :=`. */
function readDeclaration(reader: Reader, maxDeclared: number): { declared: string[]; isNew: boolean } {
  const names: string[] = []
  let ahead = reader.at
  while (reader.tokens[ahead]?.kind === 'variable') {
    names.push(reader.tokens[ahead]?.text ?? '')
    const next = reader.tokens[ahead + 1]?.kind
    if (next === ':=' || next === '=') {
      if (names.length > maxDeclared || names.includes('$'))
        throw new TemplateFault('these variables cannot be assigned here', reader.line)
      reader.at = ahead + 2
      return { declared: names, isNew: next === ':=' }
    }
    if (next !== ',') break
    ahead += 2
  }
  return { declared: [], isNew: true }
}

function readCommand(reader: Reader): Expression[] {
  const command: Expression[] = []
  for (let token = reader.tokens[reader.at]; token !== undefined; token = reader.tokens[reader.at]) {
    if (token.kind === '|' || token.kind === ')') break
    if (command.length > 0 && !token.isApart)
      throw new TemplateFault(`missing blank before "${token.text}"`, reader.line)
    if (command.length > MAX_ARGUMENTS) throw new TemplateFault('a command has too many arguments', reader.line)
    command.push(readOperand(reader, token))
  }
  return command
}

function readOperand(reader: Reader, token: Token): Expression {
  reader.at++
  switch (token.kind) {
    case 'string':
      return { kind: 'literal', value: textOf(token.text, reader.line) }
    case 'number':
      return { kind: 'literal', value: Number(token.text) }
    case 'dot':
      return { kind: 'dot', fields: [] }
    case 'field':
      return { kind: 'dot', fields: [token.text.slice(1), ...readFields(reader)] }
    case 'variable':
      return { kind: 'variable', name: token.text, fields: readFields(reader) }
    case 'word':
      return wordOf(token.text, reader.line)
    case '(': {
      reader.depth++
      if (reader.depth > MAX_DEPTH) throw new TemplateFault('too many nested parentheses', reader.line)
      const pipeline = readPipeline(reader, 0)
      if (!take(reader, ')')) throw new TemplateFault('unclosed parenthesis', reader.line)
      reader.depth--
      return { kind: 'pipeline', pipeline, fields: readFields(reader) }
    }
    default:
      throw new TemplateFault(`unexpected "${token.text}"`, reader.line)
  }
}

function wordOf(word: string, line: number): Expression {
  if (word === 'true' || word === 'false') return { kind: 'literal', value: word === 'true' }
  if (word === 'nil') return { kind: 'literal', value: null }
  if (!isFunction(word))
    throw new TemplateFault(`unknown function ${word}: use ${Object.keys(FUNCTIONS).join(', ')}`, line)
  return { kind: 'call', name: word }
}

/** Reads the fields that follow without a blank. */
function readFields(reader: Reader): string[] {
  const fields: string[] = []
  for (let next = reader.tokens[reader.at]; next?.kind === 'field' && !next.isApart; next = reader.tokens[reader.at]) {
    fields.push(next.text.slice(1))
    reader.at++
  }
  return fields
}

function take(reader: Reader, kind: Token['kind']): boolean {
  if (reader.tokens[reader.at]?.kind !== kind) return false
  reader.at++
  return true
}

function requireArguments(command: readonly Expression[], isPiped: boolean, line: number): void {
  const [first, second] = command
  if (first?.kind !== 'call') {
    if (command.length > 1) throw new TemplateFault('only a function takes arguments', line)
    return
  }
  const { least, most } = FUNCTIONS[first.name]
  const given = command.length - 1 + (isPiped ? 1 : 0)
  if (given < least || given > most) throw new TemplateFault(`${first.name} does not accept ${given} arguments`, line)
  // The first argument is part of the error message, so it must be a literal and not a value of the device.
  if (first.name === 'required' && (second?.kind !== 'literal' || typeof second.value !== 'string'))
    throw new TemplateFault('the first argument of required must be a text in quotes', line)
}

const failingAt = (line: number) => ({
  fail: (message: string): never => {
    throw new TemplateFault(message, line)
  },
})

/** Accepts only escapes that Go and JSON share. */
function textOf(token: string, line: number): string {
  if (token.startsWith('`')) return token.slice(1, -1)
  try {
    return wellFormed(String(JSON.parse(token)), failingAt(line))
  } catch (error) {
    throw error instanceof TemplateFault ? error : new TemplateFault('a text contains an invalid escape', line)
  }
}

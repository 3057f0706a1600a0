/**
 * Reads a template: a part of the language of Go's text/template, which is what profiles of this platform family are
 * written in. There is no way to define or call anything, no file, no network; everything that is not known is refused here.
 */
import { FUNCTIONS, isFunction, wellFormed } from './functions.ts'
import type { Block, Expression, Node, Pipeline } from './syntax.ts'
import { TemplateFault } from './syntax.ts'
import { piecesOf } from './tokens.ts'
import type { Piece, Token } from './tokens.ts'

/** Blocks within blocks, and parentheses within parentheses. */
const MAX_DEPTH = 32
/** Commands of a pipeline, and arguments of one. */
const MAX_ARGUMENTS = 32

/** A block that is not closed yet; `nodes` is where the next node goes. */
type Open = { node: Block; nodes: Node[]; hasElse: boolean; closesWith: number; line: number }

const BLOCKS = new Set(['if', 'with', 'range'])
const REFUSED = new Set(['define', 'template', 'block', 'break', 'continue'])

/** Throws `TemplateFault` for what cannot be read. */
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
  if (REFUSED.has(word)) throw fault(`{{${word}}} is not served`)
  if (BLOCKS.has(word)) {
    const kind = word as Block['kind']
    if (open.length >= MAX_DEPTH) throw fault(`more than ${MAX_DEPTH} blocks stand in each other`)
    const block = openBlock(kind, tokens.slice(1), line, 1)
    here().push(block.node)
    open.push(block)
  } else if (word === 'else') {
    const current = open.at(-1)
    if (current === undefined || current.hasElse) throw fault('{{else}} belongs to no {{if}}, {{with}} or {{range}}')
    const otherwise: Node[] = []
    current.node.otherwise = otherwise
    current.hasElse = true
    current.nodes = otherwise
    const next = tokens[1]
    if (next === undefined) return
    if (next.kind !== 'word' || next.text !== current.node.kind || current.node.kind === 'range')
      throw fault('behind {{else}} nothing may stand, or a condition of the same kind')
    if (open.length >= MAX_DEPTH) throw fault(`more than ${MAX_DEPTH} conditions follow each other`)
    const chained = openBlock(current.node.kind, tokens.slice(2), line, current.closesWith + 1)
    otherwise.push(chained.node)
    open.push(chained)
  } else if (word === 'end') {
    const current = open.at(-1)
    if (current === undefined) throw fault('{{end}} closes nothing')
    if (tokens.length > 1) throw fault('behind {{end}} nothing may stand')
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
  if (left !== undefined) throw new TemplateFault(`"${left.text}" is not expected here`, line)
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
      throw new TemplateFault('behind | a function must stand', reader.line)
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
        throw new TemplateFault('these variables cannot be set here', reader.line)
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
      throw new TemplateFault(`a blank is missing before "${token.text}"`, reader.line)
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
      if (reader.depth > MAX_DEPTH) throw new TemplateFault('too many parentheses stand in each other', reader.line)
      const pipeline = readPipeline(reader, 0)
      if (!take(reader, ')')) throw new TemplateFault('a parenthesis is not closed', reader.line)
      reader.depth--
      return { kind: 'pipeline', pipeline, fields: readFields(reader) }
    }
    default:
      throw new TemplateFault(`"${token.text}" is not expected here`, reader.line)
  }
}

function wordOf(word: string, line: number): Expression {
  if (word === 'true' || word === 'false') return { kind: 'literal', value: word === 'true' }
  if (word === 'nil') return { kind: 'literal', value: null }
  if (!isFunction(word))
    throw new TemplateFault(`there is no function ${word}: served are ${Object.keys(FUNCTIONS).join(', ')}`, line)
  return { kind: 'call', name: word }
}

/** Fields that follow without a blank. */
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
  if (given < least || given > most) throw new TemplateFault(`${first.name} does not take ${given} arguments`, line)
  // Its first argument is said in a refusal: a value of the device must not be.
  if (first.name === 'required' && (second?.kind !== 'literal' || typeof second.value !== 'string'))
    throw new TemplateFault('the first argument of required must be a text in quotes', line)
}

const failingAt = (line: number) => ({
  fail: (message: string): never => {
    throw new TemplateFault(message, line)
  },
})

/** The escapes of Go that JSON has as well, and no others. */
function textOf(token: string, line: number): string {
  if (token.startsWith('`')) return token.slice(1, -1)
  try {
    return wellFormed(String(JSON.parse(token)), failingAt(line))
  } catch (error) {
    throw error instanceof TemplateFault ? error : new TemplateFault('a text has an escape that is none', line)
  }
}

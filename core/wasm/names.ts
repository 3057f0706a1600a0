/**
 * Names in modules and components: their length, and the grammar of those that the component model defines (component
 * model, Explainer.md, "Import and Export Definitions"). Names of the component model become identifiers and texts of the
 * transpiled script, so a name outside the grammar is refused before the transpiler sees it.
 */
import type { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'

/** Of an import or export of a module or component, and of each name in the types of a component. */
export const MAX_NAME_BYTES = 1024
/** Of a name in a message. */
const MAX_SHOWN_CHARACTERS = 100

/** Words are of one case each; only the first begins with a letter for sure. */
const IS_WORD = /^(?:[0-9a-z]+|[0-9A-Z]+)$/
const IS_LOWER_WORD = /^[0-9a-z]+$/
const IS_VERSION = /^[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/
const CONSTRUCTOR = '[constructor]'
const METHOD = '[method]'
const STATIC = '[static]'

/** A property of every object in JavaScript, and a keyword of WIT. */
const RESERVED_LABELS: ReadonlySet<string> = new Set(['constructor'])
/** Properties that every class has and that cannot be assigned. */
const RESERVED_STATICS: ReadonlySet<string> = new Set(['caller', 'length', 'name', 'prototype'])

/** A name of any characters, as core modules have them. `what` names the thing in the refusal. */
export function readBoundedName(cursor: ByteCursor, what: string): string {
  const start = cursor.offset
  const length = cursor.u32()
  if (length > MAX_NAME_BYTES) {
    throw new ModuleRefusal(
      `the name of ${what} at byte ${start} has ${length} bytes, at most ${MAX_NAME_BYTES} are accepted`,
    )
  }
  cursor.offset = start
  return cursor.name()
}

/** The name of a field, case, flag or parameter: a label in kebab case. */
export function readLabel(cursor: ByteCursor, what: string): string {
  const label = readBoundedName(cursor, what)
  if (!isLabel(label)) {
    throw new ModuleRefusal(
      `${showName(label)} is not a valid name of ${what}: kebab case is accepted, such as \`max-value\``,
    )
  }
  requireUnreserved(label, RESERVED_LABELS)
  return label
}

/** The name of an import or export of a component or an instance. */
export function readExternName(cursor: ByteCursor): string {
  const form = cursor.byte()
  if (form > 1)
    throw new ModuleRefusal(`the component uses a name of the form 0x${form.toString(16)} that is not accepted`)
  return readExternNameText(cursor)
}

/** The same without the byte before it that tells forms of names apart. */
export function readExternNameText(cursor: ByteCursor): string {
  const name = readBoundedName(cursor, 'an import or export')
  if (isInterfaceName(name)) return name
  const labels = labelsOf(name)
  if (!labels.every((label) => isLabel(label))) {
    throw new ModuleRefusal(
      `${showName(name)} is not a valid name of an import or export of a component: kebab case is accepted, such as ` +
        '`max-value`, `[constructor]sensor`, `[method]sensor.read`, `[static]sensor.open` and `acme:sensors/reader@1.0.0`',
    )
  }
  for (const label of labels) requireUnreserved(label, RESERVED_LABELS)
  if (name.startsWith(STATIC)) requireUnreserved(labels[1] ?? '', RESERVED_STATICS)
  return name
}

/** The labels of a plain name; something that is no label where it has not as many as its kind. */
function labelsOf(name: string): string[] {
  if (name.startsWith(CONSTRUCTOR)) return [name.slice(CONSTRUCTOR.length)]
  const prefix = [METHOD, STATIC].find((kind) => name.startsWith(kind))
  if (prefix === undefined) return [name]
  const labels = name.slice(prefix.length).split('.')
  return labels.length === 2 ? labels : ['']
}

/** Words are tested one by one: a pattern of the whole name would try every way to part it. */
function isLabel(name: string): boolean {
  return /^[a-zA-Z]/.test(name) && name.split('-').every((word) => IS_WORD.test(word))
}

function isLowerLabel(name: string): boolean {
  return /^[a-z]/.test(name) && name.split('-').every((word) => IS_LOWER_WORD.test(word))
}

/** `namespace:package/interface`, and a version behind `@`. */
function isInterfaceName(name: string): boolean {
  const [path, version] = splitOnce(name, '@')
  const [namespace, rest = ''] = splitOnce(path, ':')
  const [packageName, label = ''] = splitOnce(rest, '/')
  const isVersioned = version === undefined || IS_VERSION.test(version)
  return isLowerLabel(namespace) && isLowerLabel(packageName) && isLabel(label) && isVersioned
}

function splitOnce(text: string, separator: string): [string, string?] {
  const at = text.indexOf(separator)
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + separator.length)]
}

function requireUnreserved(label: string, reserved: ReadonlySet<string>): void {
  if (!reserved.has(label.toLowerCase())) return
  throw new ModuleRefusal(
    `${showName(label)} is not accepted as a name in a component: JavaScript, which components are transpiled to, reserves it`,
  )
}

/** Quoted and short; what is invisible or turns the direction of text is escaped. */
export function showName(name: string): string {
  const shown = name.length > MAX_SHOWN_CHARACTERS ? `${name.slice(0, MAX_SHOWN_CHARACTERS)}…` : name
  return JSON.stringify(shown).replaceAll(
    /[\p{C}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  )
}

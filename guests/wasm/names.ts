/**
 * Names in modules and components: their length, and the grammar of component names (component model, Explainer.md, "Import and
 * Export Definitions"). Component names become identifiers and texts of the transpiled script, so names outside of the grammar are
 * rejected before the transpiler sees them.
 */
import type { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'

/** The limit of a name of an import or export, and of each name in the types of a component. */
export const MAX_NAME_BYTES = 1024
/** The limit of a name in a message. */
const MAX_SHOWN_CHARACTERS = 100

/** A word has one case; only the first word must begin with a letter. */
const IS_WORD = /^(?:[0-9a-z]+|[0-9A-Z]+)$/
const IS_LOWER_WORD = /^[0-9a-z]+$/
const IS_VERSION = /^[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/
const CONSTRUCTOR = '[constructor]'
const METHOD = '[method]'
const STATIC = '[static]'

/**
 * A property of every object in JavaScript, and a keyword of WIT. Types and cases of variants may have the name: types have
 * none in JavaScript, and cases are texts there.
 */
const RESERVED_LABELS: ReadonlySet<string> = new Set(['constructor'])
/** Properties that every class has and that cannot be assigned. */
const RESERVED_STATICS: ReadonlySet<string> = new Set(['caller', 'length', 'name', 'prototype'])

/** A name of any characters, as in core modules. `what` names the object in the error. */
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

/** The name of a field, flag, parameter or of a case of an enum: a label in kebab case. */
export function readLabel(cursor: ByteCursor, what: string): string {
  const label = readCaseLabel(cursor, what)
  requireUnreserved(label, RESERVED_LABELS)
  return label
}

/** The name of a case of a variant. */
export function readCaseLabel(cursor: ByteCursor, what: string): string {
  const label = readBoundedName(cursor, what)
  if (!isLabel(label)) {
    throw new ModuleRefusal(`${showName(label)} is not a valid name of ${what}; use kebab case, such as \`max-value\``)
  }
  return label
}

/** The name of an import or export of a component or an instance; `requireUsableName` follows, unless it names a type. */
export function readExternName(cursor: ByteCursor): string {
  const form = cursor.byte()
  if (form > 1)
    throw new ModuleRefusal(`the component uses a name of the form 0x${form.toString(16)} that is not accepted`)
  return readExternNameText(cursor)
}

/** Reads the name of an import or export as `readExternName` does, without the prefix byte of the form. */
export function readExternNameText(cursor: ByteCursor): string {
  const name = readBoundedName(cursor, 'an import or export')
  if (isInterfaceName(name)) return name
  const labels = labelsOf(name)
  if (!labels.every((label) => isLabel(label))) {
    throw new ModuleRefusal(
      `${showName(name)} is not a valid name of an import or export of a component; use kebab case, such as ` +
        '`max-value`, `[constructor]sensor`, `[method]sensor.read`, `[static]sensor.open` and `acme:sensors/reader@1.0.0`',
    )
  }
  return name
}

/** Refuses a valid name that JavaScript reserves. */
export function requireUsableName(name: string): void {
  if (isInterfaceName(name)) return
  const labels = labelsOf(name)
  for (const label of labels) requireUnreserved(label, RESERVED_LABELS)
  if (name.startsWith(STATIC)) requireUnreserved(labels[1] ?? '', RESERVED_STATICS)
}

/** The labels of a plain name; an invalid label when their number does not match the kind. */
function labelsOf(name: string): string[] {
  if (name.startsWith(CONSTRUCTOR)) return [name.slice(CONSTRUCTOR.length)]
  const prefix = [METHOD, STATIC].find((kind) => name.startsWith(kind))
  if (prefix === undefined) return [name]
  const labels = name.slice(prefix.length).split('.')
  return labels.length === 2 ? labels : ['']
}

/** Words are tested one by one: a pattern of the whole name would backtrack. */
function isLabel(name: string): boolean {
  return /^[a-zA-Z]/.test(name) && name.split('-').every((word) => IS_WORD.test(word))
}

function isLowerLabel(name: string): boolean {
  return /^[a-z]/.test(name) && name.split('-').every((word) => IS_LOWER_WORD.test(word))
}

/** `namespace:package/interface`, with an optional version after `@`. */
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
    `${showName(label)} is not accepted as a name in a component, because JavaScript, the target of the transpiler, reserves it`,
  )
}

/** Quoted and shortened; invisible and bidirectional characters are escaped. */
export function showName(name: string): string {
  const shown = name.length > MAX_SHOWN_CHARACTERS ? `${name.slice(0, MAX_SHOWN_CHARACTERS)}…` : name
  return JSON.stringify(shown).replaceAll(
    /[\p{C}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  )
}

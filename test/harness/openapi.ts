/** openapi.json with an operation for each path, and with every part in its place, as tests walk through it. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { completeDocument } from '#http/index.ts'
import type { Document } from '#http/index.ts'

const FILE = join(import.meta.dirname, '..', '..', 'openapi.json')

export const documentText = (): string => readFileSync(FILE, 'utf8')

export const publishedDocument = (): object => JSON.parse(documentText()) as object

export const wholeDocument = (): object => completeDocument(publishedDocument() as Document)

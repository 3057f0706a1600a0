/** Programs of tests keep compiled code where `npm start` does: compiling is a fifth of a start's processor time. */
import { join } from 'node:path'

export const COMPILE_CACHE = { NODE_COMPILE_CACHE: join(import.meta.dirname, '../../node_modules/.cache/node') }

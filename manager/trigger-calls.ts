/** What a message passes to a function, and what a function may publish: for the trial of a module without a manager. */
export { requirePack } from './model/publication.ts'
export { inputsOf, triggersOf } from './model/trigger-message.ts'

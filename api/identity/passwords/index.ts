export { hashPassword, verifyAgainstDecoy, verifyPassword } from './password.ts'

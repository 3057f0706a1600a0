export { hashPassword, verifyAgainstNobody, verifyPassword } from './password.ts'

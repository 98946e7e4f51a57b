variable "words" {
  type = number
}

resource "random_pet" "it" {
  length = var.words
}

output "size" {
  value = var.words
}

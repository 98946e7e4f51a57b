# The module behind SimpleResource. Nothing is rendered into it: values arrive as variables, and are never evaluated.

terraform {
  required_providers {
    random = {
      source = "hashicorp/random"
    }
    local = {
      source = "hashicorp/local"
    }
  }
}

variable "name" {
  type = string
}

variable "namespace" {
  type = string
}

variable "length" {
  type = number
}

variable "prefix" {
  type    = string
  default = ""
}

variable "vars" {
  type    = map(string)
  default = {}
}

variable "sleep" {
  type    = string
  default = "0s"
}

locals {
  sleep = lookup(var.vars, "sleep", var.sleep)
}

resource "random_string" "value" {
  length  = var.length
  special = lookup(var.vars, "special", "true") == "true"
  upper   = lookup(var.vars, "upper", "true") == "true"
}

resource "local_file" "value" {
  filename = "/tmp/opr8r-${var.namespace}-${var.name}.txt"
  content  = "${var.prefix}${random_string.value.result}"
}

# There is no shell to sleep in: the runner itself is the interpreter.
resource "terraform_data" "sleep" {
  count            = local.sleep == "0s" ? 0 : 1
  triggers_replace = [random_string.value.result, local.sleep]

  provisioner "local-exec" {
    interpreter = ["tf-runner", "sleep"]
    command     = local.sleep
  }
}

output "random_value" {
  value = random_string.value.result
}

output "file_path" {
  value = local_file.value.filename
}

output "file_content" {
  value = local_file.value.content
}

output "length" {
  value = random_string.value.length
}
